"""Of two jobs that would share a name the second is refused, and the first goes on."""

from __future__ import annotations

from typing import Any

import pytest

from transload.errors import SubmitError
from transload.schedulers.api import Submission, reconcile
from transload.specs import AppState, RetryPolicy
from transload_kubernetes import names


def start(scheduler: Any, app: Any, app_id: str, **cfg: Any) -> None:
    """Submit an app as the runner does."""
    options = scheduler.options.read({"jobset": "never", **cfg})
    submission = Submission(app, app.digest(), "tests", options.cfg(), id_given=True)
    scheduler.submit(scheduler.convert(app, options), app_id, submission)


def reaches(scheduler: Any, eventually: Any, app_id: str, state: AppState) -> Any:
    """Wait until a job is in a state, and return its status."""

    def look() -> Any:
        found = scheduler.describe([app_id])[app_id]
        reconcile(scheduler, found)
        return found.status if found.status.state is state else None

    return eventually(look, 60)


def held(fake: Any) -> dict[tuple[str, str], str]:
    """Return the uid of every object by kind and name, pods and events aside."""
    return {
        (item["kind"], item["metadata"]["name"]): item["metadata"]["uid"]
        for item in fake.snapshot()
        if item["kind"] not in ("Pod", "Event")
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("train", "x-worker"), ("train-x", "worker")),
        (("train", "main"), ("train-main", "a0r1")),
        (("train", "main-0"), ("train-main", "0")),
        (("x", "rank0"), ("x-rank0", "main")),
    ],
)
def test_no_two_apps_need_one_name(first: tuple[str, str], second: tuple[str, str]) -> None:
    """What stands behind the last dash says what an object is, so that the names of two apps are
    never the same.
    """
    found = []
    for app_id, role in (first, second):
        base = names.base_name(app_id)
        job = names.job_name(base, role)
        jobs = {job, names.job_name(base, role, (0, 1)), f"{job}-0"}
        found.append((jobs, {base, names.rank0_name(base)}))
    assert not found[0][0] & found[1][0] and not found[0][1] & found[1][1]


def test_no_role_runs_for_a_submit_that_is_refused_at_another(
    fake: Any, scheduler: Any, shell: Any
) -> None:
    """What the cluster says of a later role does not start the first for a moment."""
    from fake_api import ApiError  # type: ignore[import-not-found]

    seen = fake.cluster.version
    create = fake.cluster.create

    def refusing(plural: str, namespace: str, item: dict[str, Any], **options: Any) -> Any:
        if plural == "jobs" and item["metadata"]["name"] == "big-writer":
            raise ApiError(403, "Forbidden", "exceeded quota")
        return create(plural, namespace, item, **options)

    fake.cluster.create = refusing
    with pytest.raises(SubmitError, match="exceeded quota"):
        start(scheduler, shell({"reader": "true", "writer": "true"}), "big")
    later = [(kind, item) for version, _, kind, item in fake.cluster.history if version > seen]
    assert {item["metadata"]["name"] for kind, item in later if kind == "jobs"} == set()


def test_a_cluster_that_cannot_try_is_no_hindrance(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a webhook refuses whatever is only to be tried, all is made without."""
    from fake_api import ApiError

    create = fake.cluster.create

    def webhook(*args: Any, only_try: bool = False) -> Any:
        if only_try:
            raise ApiError(
                400, "BadRequest", 'admission webhook "old.example" does not support dry run'
            )
        return create(*args)

    monkeypatch.setattr(fake.cluster, "create", webhook)
    start(scheduler, shell({"reader": "true", "writer": "true"}), "x")
    reaches(scheduler, eventually, "x", AppState.SUCCEEDED)


def test_somebody_elses_jobset_is_left_alone(fake: Any, scheduler: Any, shell: Any) -> None:
    """A JobSet that no app has made is neither adopted nor deleted when the submit is undone."""
    network = {"enableDNSHostnames": False}
    fake.cluster.create(
        "jobsets",
        "default",
        {"metadata": {"name": "x"}, "spec": {"network": network, "replicatedJobs": []}},
    )
    before = held(fake)
    with pytest.raises(SubmitError, match="JobSet x .* another owner's"):
        start(scheduler, shell("sleep 300"), "x", jobset="always")
    assert held(fake) == before


def test_what_an_undone_submit_has_left_passes(fake: Any, scheduler: Any, shell: Any) -> None:
    """Names of an undone submit are taken until they are collected, which is transient."""
    base = names.base_name("x")
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": base,
        "uid": "of the record that was removed",
    }
    job = {"name": names.job_name(base, "main"), "ownerReferences": [owner]}
    fake.cluster.create(
        "jobs", "default", {"metadata": job, "spec": {"suspend": True, "template": {}}}
    )
    with pytest.raises(SubmitError, match="left over from an earlier submit") as caught:
        start(scheduler, shell("sleep 300"), "x")
    assert caught.value.transient
    fake.cluster.delete("jobs", "default", job["name"])
    start(scheduler, shell("sleep 300"), "x")


def test_a_restart_whose_name_is_taken_says_so(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A restart whose Job's name is taken makes the job FAILED by that name, not "deleted"."""
    spec = {"suspend": True, "completions": 1, "template": {}}
    fake.cluster.create("jobs", "default", {"metadata": {"name": "train-main-a1r0"}, "spec": spec})
    app = shell("exit 3", replicas=2, max_retries=1, retry_policy=RetryPolicy.ROLE)
    start(scheduler, app, "train", jobset="never")
    found = reaches(scheduler, eventually, "train", AppState.FAILED)
    assert "Job train-main-a1r0" in found.msg and "another owner's" in found.msg


def test_a_conflict_about_something_else_is_no_adoption(
    fake: Any, scheduler: Any, shell: Any
) -> None:
    """A 409 of a quota's count is an error that may be tried again, not a reattach."""
    from fake_api import ApiError  # type: ignore[import-not-found]

    text = "Operation cannot be fulfilled on resourcequotas"
    fake.cluster.fail["POST", "jobs"] = ApiError(409, "Conflict", text)
    with pytest.raises(SubmitError, match=text) as caught:
        start(scheduler, shell("true"), "x")
    assert caught.value.transient
    assert held(fake) == {}
