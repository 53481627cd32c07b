"""A real cluster has quotas, Pod Security, evictions, drains, lost Jobs and rights."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, SubmitError
from transload.runner import log_lines
from transload.schedulers import Changes
from transload.schedulers.api import Submission, reconcile
from transload.specs import AppDef, AppState, AppStatus, Role

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
CFG: dict[str, Any] = {"image_pull_policy": "IfNotPresent"}


def shell(commands: dict[str, str] | str, replicas: int = 1, **fields: Any) -> AppDef:
    """Return an app of shell commands."""
    named = {"main": commands} if isinstance(commands, str) else commands
    roles = [
        Role(name, IMAGE, entrypoint="sh", args=["-c", text], num_replicas=replicas)
        for name, text in named.items()
    ]
    for name, value in fields.items():
        setattr(roles[0], name, value)
    return AppDef("fault", roles)


def start(scheduler: Any, namespace: str, app: AppDef, app_id: str = "fault", **cfg: Any) -> str:
    """Submit a job in a namespace, and return its id."""
    options = scheduler.options.read({**CFG, "namespace": namespace, **cfg})
    app_id = f"{namespace}:{app_id}"
    request = scheduler.convert(app, options)
    scheduler.submit(
        request, app_id, Submission(app, app.digest(), "tests", options.cfg(), id_given=True)
    )
    return app_id


def status(scheduler: Any, app_id: str) -> AppStatus:
    """Return the status of an app that is there, as its owner sees it."""
    found = scheduler.describe([app_id])[app_id]
    assert found is not None
    reconcile(scheduler, found)
    return found.status  # type: ignore[no-any-return]


def reaches(scheduler: Any, eventually: Any, app_id: str, state: AppState) -> AppStatus:
    """Wait until an app is in a state."""
    return eventually(lambda: (it := status(scheduler, app_id)).state is state and it, 90)  # type: ignore[no-any-return]


def test_quota(cluster: Any, namespace: str, scheduler: Any, eventually: Any) -> None:
    """A job whose pods a quota forbids waits with the reason.

    A limit of Jobs refuses the submit.
    """
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    app_id = start(scheduler, namespace, shell("true"))
    found = eventually(lambda: "exceeded quota" in (it := status(scheduler, app_id)).msg and it, 60)
    assert not found.is_terminal()
    scheduler.cancel([app_id])
    assert reaches(scheduler, eventually, app_id, AppState.CANCELLED).cancel_requested
    jobs = {"metadata": {"name": "j"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", jobs)

    number = itertools.count()

    def refused() -> bool:
        try:
            scheduler.delete(start(scheduler, namespace, shell("true"), f"more-{next(number)}"))
        except SubmitError as exc:
            return "exceeded quota" in str(exc) and "rights" not in str(exc)
        return False

    eventually(refused, 60)


def test_pod_security(
    cluster: Any, scheduler: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a restricted namespace refuses is reported with the option, with which the job runs."""
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig)
    strict = cluster.namespace(**{"pod-security.kubernetes.io/enforce": "restricted"})
    scheduler.close()
    bare = start(scheduler, strict, shell("true"))
    eventually(
        lambda: (
            "PodSecurity" in (it := status(scheduler, bare)).msg
            and "pod_security=restricted" in it.msg
        ),
        60,
    )
    user = json.dumps({"spec": {"template": {"spec": {"securityContext": {"runAsUser": 1000}}}}})
    app = shell("id -u")
    app_id = start(scheduler, strict, app, "with", pod_security="restricted", overlay=user)
    reaches(scheduler, eventually, app_id, AppState.SUCCEEDED)
    assert list(log_lines(scheduler, app_id, "main", 0)) == ["1000\n"]


def test_a_readers_rights(
    cluster: Any,
    namespace: str,
    scheduler: Any,
    eventually: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has the first Role sees everything and can change nothing."""
    app_id = start(
        scheduler, namespace, shell({"bad": "exit 3", "good": "sleep 300"}), jobset="never"
    )
    monkeypatch.setenv("KUBECONFIG", str(cluster.user(namespace, tmp_path, "transload-observe")))
    from transload_kubernetes.scheduler import create_scheduler

    reader = create_scheduler("reader")
    found = eventually(
        lambda: (
            (it := reader.describe([app_id])[app_id]).needs_reconcile
            and it.status.state is AppState.RUNNING
            and it
        ),
        60,
    )
    assert "bad/0" in found.status.msg
    assert [row.app_id for row in reader.list()] == [app_id]
    checks = {name: ok for name, ok, _ in reader.diagnose()}
    assert checks["observe"] and not checks["submit"]
    with pytest.raises(SchedulerUnavailable, match="cannot patch"):
        reader.cancel([app_id])
    reader.close()
    assert reaches(scheduler, eventually, app_id, AppState.FAILED).msg.startswith("bad/0")


def test_a_node_that_is_drained(
    cluster: Any, namespace: str, scheduler: Any, eventually: Any
) -> None:
    """Evicted pods of a drained node wait with the reason, without a failure or retry."""
    app_id = start(scheduler, namespace, shell("echo up; sleep 8; echo done"))
    reaches(scheduler, eventually, app_id, AppState.RUNNING)
    pod = cluster.items(namespace, "pods")[0]
    node, name = f"/api/v1/nodes/{pod['spec']['nodeName']}", pod["metadata"]["name"]
    cluster.ask("PATCH", node, {"spec": {"unschedulable": True}})
    try:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        cluster.ask("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)
        found = eventually(
            lambda: "Unschedulable" in (it := status(scheduler, app_id)).msg and it, 60
        )
        assert found.state is AppState.PENDING
    finally:
        cluster.ask("PATCH", node, {"spec": {"unschedulable": False}})
    found = reaches(scheduler, eventually, app_id, AppState.SUCCEEDED)
    assert (found.num_restarts, found.interruptions) == (0, 1)


def test_a_place_that_the_server_has_forgotten(
    namespace: str, scheduler: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch from a forgotten place gets 410, counts all as changed, and goes on."""
    from transload_kubernetes.cluster import Cluster, ClusterError

    app_id = start(scheduler, namespace, shell("sleep 300"))
    reaches(scheduler, eventually, app_id, AppState.RUNNING)
    opened, gone = Cluster.watch, []

    def too_old(self: Any, kind: str, space: str, version: str, seconds: int, **chosen: str) -> Any:
        if kind in gone:
            return opened(self, kind, space, version, seconds, **chosen)
        gone.append(kind)
        return opened(self, kind, space, "1", seconds, **chosen)

    seen: list[int] = []
    refused = ClusterError.__init__

    def noted(self: Any, status_: int, reason: str, message: str) -> None:
        seen.append(status_)
        refused(self, status_, reason, message)

    monkeypatch.setattr(Cluster, "watch", too_old)
    monkeypatch.setattr(ClusterError, "__init__", noted)
    changes = Changes()
    watch = scheduler.watch(changes.add)
    try:
        watch.update([app_id])
        eventually(lambda: changes.wait(1.0) and 410 in seen, 60)
        scheduler.cancel([app_id])
        eventually(
            lambda: changes.wait(1.0) and status(scheduler, app_id).state is AppState.CANCELLED, 60
        )
    finally:
        watch.close()
