"""Option ``jobset`` makes one JobSet for each job, here with an imitated controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from transload.errors import SubmitError, UnsupportedFeature
from transload.schedulers.api import Submission, reconcile
from transload.specs import AppDef, AppState, CfgVal, RetryPolicy, Role
from transload_kubernetes.convert import KubernetesRequest, convert, format_request
from transload_kubernetes.options import KubernetesOptions

RESTARTS = "jobset.sigs.k8s.io/restart-attempt"

# What jobset.x-k8s.io/v1alpha2 allows of the fields that are used here, after its reference
# documentation.
_NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_RULE = {
    "type": "object",
    "required": ["name", "action"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "maxLength": 128},
        "action": {"enum": ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]},
        "onJobFailureReasons": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "enum": [
                    "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded",
                    "PodFailurePolicy",
                ]
            },
        },
        "targetReplicatedJobs": {"type": "array", "items": _NAME},
    },
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"},
        "kind": {"const": "JobSet"},
        "metadata": {"type": "object", "required": ["name"], "properties": {"name": _NAME}},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["replicatedJobs"],
            "properties": {
                "suspend": {"type": "boolean"},
                "network": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "enableDNSHostnames": {"type": "boolean"},
                        "subdomain": _NAME,
                        "publishNotReadyAddresses": {"type": "boolean"},
                    },
                },
                "successPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["operator"],
                    "properties": {"operator": {"enum": ["All", "Any"]}},
                },
                "failurePolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "maxRestarts": {"type": "integer", "minimum": 0},
                        "restartStrategy": {"enum": ["Recreate", "BlockingRecreate"]},
                        "rules": {"type": "array", "items": _RULE},
                    },
                },
                "replicatedJobs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["name", "template"],
                        "properties": {
                            "name": _NAME,
                            "replicas": {"type": "integer", "minimum": 0},
                            "template": {"type": "object", "required": ["spec"]},
                        },
                    },
                },
            },
        },
    },
}


def request_for(app: AppDef, app_id: str = "digits-1", **cfg: CfgVal) -> KubernetesRequest:
    """Return the request for an app as a JobSet."""
    return convert(app, KubernetesOptions.read({"jobset": "always", **cfg}), "kubernetes", app_id)


def role(name: str, **fields: Any) -> Role:
    """Return a role with these fields."""
    return Role(name, "registry.example/a:1", entrypoint="python3", **fields)


def start(scheduler: Any, app: AppDef, app_id: str = "set", **cfg: Any) -> str:
    """Submit a job as a JobSet, and return its id."""
    options = scheduler.options.read({"jobset": "always", **cfg})
    request = scheduler.convert(app, options)
    scheduler.submit(
        request, app_id, Submission(app, app.digest(), "tests", options.cfg(), id_given=True)
    )
    return app_id


def status(scheduler: Any, app_id: str = "set") -> Any:
    """Return the status of a job that is there. What is due is done, as by its owner."""
    found = scheduler.describe([app_id])[app_id]
    assert found is not None
    reconcile(scheduler, found)
    return found.status


def reaches(scheduler: Any, eventually: Any, state: AppState, app_id: str = "set") -> Any:
    """Wait until a job is in a state, and return its status."""

    def look() -> Any:
        found = status(scheduler, app_id)
        assert found.state is state or not found.is_terminal(), found
        return found if found.state is state else None

    return eventually(look, 60)


def kinds(fake: Any) -> list[str]:
    """Return the kinds of the objects on the cluster, records aside."""
    return sorted({item["kind"] for item in fake.snapshot()} - {"ConfigMap", "Event"})


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
@pytest.mark.parametrize(
    "cfg", [{}, {"queue": "gpus", "labels": {"cost": "me"}}], ids=["plain", "queue"]
)  # fmt: skip
def test_the_manifest_is_valid(version: str, cfg: Mapping[str, CfgVal]) -> None:
    """It keeps to the documented schema, and each template is a Job that several versions of
    Kubernetes take.
    """
    roles = [
        role(
            "lead",
            num_replicas=1,
            max_retries=2,
            retry_policy=RetryPolicy.APPLICATION,
            env={"A_TOKEN": "x"},
        ),
        role("Work_er.s", num_replicas=3, max_retries=1, retry_policy=RetryPolicy.REPLICA),
    ]
    secret, made = yaml.safe_load_all(
        format_request(request_for(AppDef("a", roles, timeout=90.5), **cfg))
    )
    assert secret["kind"] == "Secret"
    jsonschema.validate(made, SCHEMA)
    for each in made["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", **each["template"]}
        job["metadata"] = {
            **job["metadata"],
            "name": f"{made['metadata']['name']}-{each['name']}-0",
        }
        kubernetes_validate.validate(job, version, strict=True)
        # the longest name that the controller makes of it is a host name
        assert len(f"{job['metadata']['name']}-99999-abcde") <= 63


def test_one_replicated_job_for_each_role() -> None:
    """Roles are replicated jobs, and the policy says what is started again, and what never is."""
    retried = role("lead", num_replicas=2, max_retries=3, retry_policy=RetryPolicy.APPLICATION)
    request = request_for(
        AppDef("a", [retried, role("reader")]), app_id="team:x", namespace="team", queue="gpus"
    )
    assert (request.services, request.jobs) == ([], [])
    made = request.jobset
    assert made is not None
    assert (made["metadata"]["name"], made["spec"]["suspend"]) == ("x", True)
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert [each["name"] for each in made["spec"]["replicatedJobs"]] == ["lead", "reader"]
    assert made["spec"]["failurePolicy"] == {
        "maxRestarts": 3,
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "tookTooLong",
                "action": "FailJobSet",
                "onJobFailureReasons": ["DeadlineExceeded"],
            },
            {"name": "notRetried", "action": "FailJobSet", "targetReplicatedJobs": ["reader"]},
        ],
    }
    template = made["spec"]["replicatedJobs"][0]["template"]
    assert "name" not in template["metadata"] and "suspend" not in template["spec"]
    assert "kueue.x-k8s.io/queue-name" not in template["metadata"]["labels"]
    env = {
        each["name"]: each for each in template["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["TRANSLOAD_RANK0_HOST"]["value"] == "x-lead-0-0.x"
    assert RESTARTS in env["TRANSLOAD_RETRY"]["valueFrom"]["fieldRef"]["fieldPath"]
    alone = request_for(AppDef("a", [role("main")])).jobset
    assert alone is not None and alone["spec"]["network"]["enableDNSHostnames"] is False
    assert alone["spec"]["failurePolicy"] == {"maxRestarts": 0}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"num_replicas": 2, "min_replicas": 1}, "roles[1].min_replicas"),
        (
            {"num_replicas": 2, "max_retries": 1, "retry_policy": RetryPolicy.ROLE},
            "roles[1].retry_policy",
        ),
        ({"max_retries": 1, "retry_policy": RetryPolicy.APPLICATION}, "roles[1].max_retries"),
    ],
)
def test_what_a_jobset_cannot_say_is_refused(fields: dict[str, Any], field: str) -> None:
    """What its policies have no words for is refused by name."""
    first = role("one", max_retries=2, retry_policy=RetryPolicy.APPLICATION)
    with pytest.raises(UnsupportedFeature, match="jobset") as caught:
        request_for(AppDef("a", [first, role("two", **fields)]))
    assert caught.value.field == field and field in str(caught.value)


def test_cancel_leaves_nothing_running(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """The JobSet is suspended, so that it makes nothing.

    The job is CANCELLED when its pods are gone.
    """
    start(scheduler, shell({"one": "sleep 300", "two": "sleep 300"}, replicas=2))
    reaches(scheduler, eventually, AppState.RUNNING)
    scheduler.cancel(["set"])
    found = reaches(scheduler, eventually, AppState.CANCELLED)
    assert found.cancel_requested
    assert not fake.cluster.processes
    eventually(lambda: not fake.cluster.items("pods"))


def test_a_queue_holds_all_of_it(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """A queue suspends the whole JobSet, which is PENDING with the reason until it is admitted.

    Where it may run is passed on to the pods.
    """
    start(scheduler, shell({"one": "true", "two": "true"}), queue="gpus")
    eventually(lambda: "waits in queue gpus" in status(scheduler).msg, 30)
    assert status(scheduler).state is AppState.PENDING and not fake.cluster.items("pods")
    with fake.cluster.lock:
        admitted = fake.cluster.get("jobsets", "default", "set")
        for each in admitted["spec"]["replicatedJobs"]:
            each["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"flavour": "spot"}
        admitted["spec"]["suspend"] = False
        fake.cluster.save("jobsets", admitted)
    reaches(scheduler, eventually, AppState.SUCCEEDED)
    assert all(
        pod["spec"]["nodeSelector"] == {"flavour": "spot"} for pod in fake.cluster.items("pods")
    )


def test_deleted_by_somebody_is_lost(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A JobSet that somebody deletes is a failure, and not made again."""
    start(scheduler, shell("sleep 300", replicas=2))
    reaches(scheduler, eventually, AppState.RUNNING)
    with fake.cluster.lock:
        fake.cluster.delete("jobsets", "default", "set")
    assert "lost" in reaches(scheduler, eventually, AppState.FAILED).msg
    assert "JobSet" not in kinds(fake)


def test_a_warning_about_the_attempt_before_is_none_about_this_one(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A warning about an earlier attempt's Job does not say why this one waits."""
    fake.cluster._start_pod = lambda *args: None
    start(scheduler, shell("true", replicas=2))
    job = eventually(lambda: fake.cluster.items("jobs"), 30)[0]
    earlier = {**job, "metadata": {**job["metadata"], "uid": "of-the-attempt-before"}}
    with fake.cluster.lock:
        fake.cluster._event(
            earlier, "MaxFailedIndexesExceeded", "Job has exceeded the number of failed indexes"
        )
    assert "MaxFailedIndexesExceeded" not in status(scheduler).msg
    with fake.cluster.lock:
        fake.cluster._event(job, "FailedCreate", "exceeded quota: pods=2")
    assert "exceeded quota: pods=2" in status(scheduler).msg


def test_no_controller(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no controller handles JobSets, the message asks whether it runs, but not at once."""
    fake.cluster.jobsets.reconcile = lambda item: None
    start(scheduler, shell("true"))
    assert not status(scheduler).msg
    monkeypatch.setattr("transload_kubernetes.hold.LONG_S", -60.0)
    eventually(lambda: "the JobSet controller has made no Job yet" in status(scheduler).msg, 30)


def test_a_cluster_without_jobsets(fake: Any, scheduler: Any, shell: Any) -> None:
    """The submit is refused with what is missing, nothing is left, and doctor says it
    beforehand.
    """
    fake.cluster.jobsets = None
    with pytest.raises(SubmitError, match="needs JobSet on the cluster"):
        start(scheduler, shell("true", replicas=2, env={"A_TOKEN": "x"}))
    assert fake.snapshot() == []
    assert "not installed" in {name: text for name, _, text in scheduler.diagnose()}["jobset"]


def test_many_apps_need_few_queries(fake: Any, scheduler: Any, shell: Any) -> None:
    """JobSets cost one more query for all apps together."""
    ids = [start(scheduler, shell("sleep 300"), f"many-{number}") for number in range(5)]
    before = len(fake.cluster.requests)
    assert set(scheduler.describe(ids)) == set(ids)
    assert len(fake.cluster.requests) - before == 4
