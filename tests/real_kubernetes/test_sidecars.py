"""Containers beside the program, before it, deleted pods and programs that write fast, on a real
cluster.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from transload.runner import log_lines
from transload.schedulers.api import Submission, reconcile
from transload.specs import AppDef, AppState, AppStatus, RetryPolicy, Role

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
CFG: dict[str, Any] = {"image_pull_policy": "IfNotPresent"}
LINES = 80_000


def shell(
    command: str, replicas: int = 1, beside: str = "", *, first: bool = False, **fields: Any
) -> AppDef:
    """Return an app of shell commands, with a container ``proxy`` beside the program or (``first``)
    before it.
    """
    role = Role("main", IMAGE, entrypoint="sh", args=["-c", command], num_replicas=replicas)
    for name, value in fields.items():
        setattr(role, name, value)
    if beside:
        container = {
            "name": "proxy",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", beside],
        }
        kind = "initContainers" if first else "containers"
        role.metadata["kubernetes.job"] = {"spec": {"template": {"spec": {kind: [container]}}}}
    return AppDef("beside", [role])


def start(scheduler: Any, namespace: str, app: AppDef, app_id: str = "beside", **cfg: Any) -> str:
    """Submit a job in a namespace, and return its id."""
    options = scheduler.run_opts().resolve({**CFG, "namespace": namespace, **cfg})
    app_id = f"{namespace}:{app_id}"
    submission = Submission(app, app.digest(), "tests", options, id_given=True)
    scheduler.submit(scheduler.convert(app, options), app_id, submission)
    return app_id


def ended(scheduler: Any, eventually: Any, app_id: str) -> AppStatus:
    """Wait for the end of an app as its owner."""

    def look() -> AppStatus | None:
        found = scheduler.describe(app_id)
        reconcile(scheduler, found)
        return found.status if found.status.is_terminal() else None

    return eventually(look, 120)  # type: ignore[no-any-return]


@pytest.mark.parametrize("jobset", ["never", "always"])
@pytest.mark.parametrize("code", [0, 7])
def test_the_end_of_the_program_decides(
    namespace: str, scheduler: Any, eventually: Any, jobset: str, code: int
) -> None:
    """A container that runs on does not hold the job, whose owner ends it.

    Exit code and log stay.
    """
    app = shell(f"echo hello; sleep 1; exit {code}", beside="sleep 3000")
    app_id = start(scheduler, namespace, app, jobset=jobset)
    text = f"its program has ended ({code}), but container proxy still runs"
    eventually(lambda: text in scheduler.describe(app_id).status.msg, 60)
    final = ended(scheduler, eventually, app_id)
    assert final.state is (AppState.FAILED if code else AppState.SUCCEEDED)
    assert final.roles[0].replicas[0].exit_code == code
    if code or jobset == "never":
        assert list(log_lines(scheduler, app_id, "main", 0)) == ["hello\n"]


def test_retries_are_as_without_it(
    cluster: Any, namespace: str, scheduler: Any, eventually: Any
) -> None:
    """A program that failed is started again, one that ended well is not, whatever runs beside
    it.
    """
    app = shell('echo "$TRANSLOAD_RETRY"; exit "$((1 - TRANSLOAD_RETRY))"', 2, "sleep 3000")
    app.roles[0].max_retries, app.roles[0].retry_policy = 1, RetryPolicy.REPLICA
    app_id = start(scheduler, namespace, app, jobset="never")
    final = ended(scheduler, eventually, app_id)
    assert (final.state, final.num_restarts) == (AppState.SUCCEEDED, 2)
    eventually(lambda: cluster.items(namespace, "batch/jobs")[0]["spec"]["suspend"])
    assert len(cluster.items(namespace, "pods")) == 4
    assert list(log_lines(scheduler, app_id, "main", 1)) == ["0\n", "1\n"]


@pytest.mark.parametrize(("first", "code"), [(False, 3), (True, 9)])
def test_a_container_that_fails_is_named(
    namespace: str, scheduler: Any, eventually: Any, first: bool, code: int
) -> None:
    """Its name, exit code and last lines are the app's error."""
    app = shell("sleep 1; echo all is well", beside=f"echo cannot listen; exit {code}", first=first)
    final = ended(scheduler, eventually, start(scheduler, namespace, app, jobset="never"))
    assert final.state is AppState.FAILED
    assert final.msg.startswith(f"main/0 container proxy exit code {code}; main/0: cannot listen")
    assert final.roles[0].replicas[0].exit_code == code


def test_a_deleted_pod_is_named(
    cluster: Any, namespace: str, scheduler: Any, eventually: Any
) -> None:
    """A replica whose pod somebody deleted has failed for that."""
    app_id = start(scheduler, namespace, shell("sleep 3000"), jobset="never")
    eventually(lambda: scheduler.describe(app_id).status.state is AppState.RUNNING, 60)
    pod = cluster.items(namespace, "pods")[0]["metadata"]["name"]
    cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod}")
    final = ended(scheduler, eventually, app_id)
    assert final.state is AppState.FAILED
    assert final.msg.endswith(": another user or program deleted its pod")


def test_what_keeps_it_waiting_wakes_a_watcher(
    namespace: str, scheduler: Any, eventually: Any
) -> None:
    """A missing key of a Secret wakes a watcher, though no Job changes.

    It says how to end the job.
    """
    app = shell("true", secrets={"KEY": "k8s:nowhere/key"})
    app_id = start(scheduler, namespace, app, jobset="never")
    watch = scheduler.watch()
    watch.update([app_id])
    try:
        eventually(
            lambda: watch.wait(5.0) and "nowhere" in scheduler.describe(app_id).status.msg, 60
        )
    finally:
        watch.close()
    assert "transload cancel kubernetes://tests/" in scheduler.describe(app_id).status.msg
    scheduler.delete(app_id)


def test_a_program_that_writes_fast(
    cluster: Any, namespace: str, scheduler: Any, eventually: Any
) -> None:
    """Its log takes no more than three times as long as the cluster takes to send it at once."""
    app = shell(f"seq -f 'line %06g of a program that writes fast' {LINES}")
    app_id = start(scheduler, namespace, app, jobset="never")
    ended(scheduler, eventually, app_id)
    pod = cluster.items(namespace, "pods")[0]["metadata"]["name"]
    pool = cluster._client.rest_client.pool_manager
    keys = {
        each["key"]: each["value"]
        for each in cluster._client.configuration.auth_settings().values()
    }
    url = f"{cluster._client.configuration.host}/api/v1/namespaces/{namespace}/pods/{pod}/log"
    began = time.monotonic()
    assert pool.request("GET", url, headers=keys).data.count(b"\n") == LINES
    at_once = time.monotonic() - began
    began = time.monotonic()
    assert sum(1 for _ in log_lines(scheduler, app_id, "main", 0)) == LINES
    assert time.monotonic() - began < 3 * at_once + 2.0
