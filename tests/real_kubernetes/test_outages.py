"""Outages of a cluster's parts, for one that REAL_CLUSTER can stop and start.

These tests run alone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.runner import Runner, log_lines
from transload.schedulers.api import LogQuery, Stream, Submission, reconcile
from transload.specs import AppDef, AppState, Role

pytestmark = pytest.mark.skipif(
    "REAL_CLUSTER" not in os.environ, reason="REAL_CLUSTER does not say how to stop a part"
)
IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")


def cluster_do(*words: str) -> None:
    """Let the program do something with parts of the cluster."""
    # what it starts is not of this test, though it begins in it
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TRANSLOAD_", "PYTEST_"))
    }
    subprocess.run([os.environ["REAL_CLUSTER"], *words], check=True, timeout=120, env=own)


def test_servers_are_killed_and_come_back(
    namespace: str, transload_home: Any, eventually: Any
) -> None:
    """A waited-for job loses and doubles nothing when API server and etcd are killed."""
    from transload_kubernetes.scheduler import create_scheduler

    app = AppDef(
        "outage",
        [
            Role(
                "main",
                IMAGE,
                entrypoint="sh",
                args=["-c", "for i in $(seq 60); do echo $i; sleep 0.5; done"],
            )
        ],
    )
    cfg = {"namespace": namespace, "image_pull_policy": "IfNotPresent"}
    with Runner("tests", {"kubernetes": create_scheduler}) as runner:
        handle = runner.run(app, "kubernetes", cfg)
        lines: list[str] = []
        follower = threading.Thread(
            target=lambda: lines.extend(runner.log_lines(handle, "main", should_tail=True))
        )
        follower.start()
        eventually(lambda: runner.status(handle).state is AppState.RUNNING, 60)  # type: ignore[union-attr]
        try:
            cluster_do("kill", "apiserver", "etcd")
            with pytest.raises(SchedulerUnavailable):
                create_scheduler("other").list()
        finally:
            cluster_do("start", "etcd", "apiserver")
        final = runner.wait(handle, timeout=150)
        assert final is not None and (final.state, final.num_restarts) == (AppState.SUCCEEDED, 0)
        follower.join(60)
        assert [line.strip() for line in lines] == [str(number) for number in range(1, 61)]
        runner.delete(handle)


@pytest.mark.parametrize("jobset", ["never", "always"])
@pytest.mark.parametrize("lost", [("POST", "/jobs"), ("PATCH", "/configmaps/"), ("PATCH", "/jobs")])
def test_a_server_is_killed_when_it_has_taken_a_request_of_a_submit(
    namespace: str,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    jobset: str,
    lost: tuple[str, str],
) -> None:
    """A refused submit starts nothing later.

    One that is not refused runs once, by its owner's wait.
    """
    from transload_kubernetes import states, submit
    from transload_kubernetes.cluster import Cluster
    from transload_kubernetes.scheduler import create_scheduler

    monkeypatch.setattr(submit, "_WITHDRAW_S", 2.0)
    monkeypatch.setattr(submit, "_START_S", 2.0)
    verb, path = lost
    path = path.replace("job", "jobset") if jobset == "always" else path
    call = Cluster._call

    def killed(self: Cluster, sent: str, where: str, *args: Any, **options: Any) -> Any:
        answer = call(self, sent, where, *args, **options)
        if (sent, path in where) == (verb, True) and where.startswith(
            ("/apis", "/api/v1/namespaces")
        ):
            monkeypatch.setattr(Cluster, "_call", call)
            answer.release_conn()
            cluster_do("kill", "apiserver")
            raise SchedulerUnavailable("the answer is lost")
        return answer

    app = AppDef("lost", [Role("main", IMAGE, entrypoint="sh", args=["-c", "echo once"])])
    scheduler = create_scheduler("tests")
    app_id = f"{namespace}:lost"
    words = {"namespace": namespace, "image_pull_policy": "IfNotPresent", "jobset": jobset}
    cfg = scheduler.run_opts().resolve(words)
    request = scheduler.convert(app, cfg)
    submission = Submission(app, app.digest(), "tests", cfg, id_given=True)
    is_refused = "/jobs" not in lost[1] or verb == "POST"
    try:
        monkeypatch.setattr(Cluster, "_call", killed)
        try:
            if is_refused:
                with pytest.raises(
                    SchedulerUnavailable, match="start only if it is submitted again"
                ):
                    scheduler.submit(request, app_id, submission)
            else:
                assert scheduler.submit(request, app_id, submission)
        finally:
            cluster_do("start", "apiserver")

        def suspended() -> bool:
            with contextlib.suppress(
                SchedulerUnavailable
            ):  # for a moment it does not know what this user may do
                facts = scheduler._lookup.facts(app_id)
                return any(map(states.is_suspended, (*facts.jobs, facts.jobset or {})))
            return False

        if is_refused:
            eventually(
                suspended, 120
            )  # controllers come back to a server a while after it is there
            assert not scheduler._lookup.facts(app_id).pods
            assert not scheduler.submit(request, app_id, submission)

        def end() -> Any:
            with contextlib.suppress(SchedulerUnavailable):
                found = scheduler.describe(app_id)
                reconcile(scheduler, found)
                return found is not None and found.status.is_terminal() and found.status
            return None

        assert eventually(end, 120).state is AppState.SUCCEEDED
        assert list(log_lines(scheduler, app_id, "main", 0)) == ["once\n"]
        scheduler.delete(app_id)
    finally:
        scheduler.close()


def test_a_kubelet_that_stops(namespace: str, transload_home: Any, eventually: Any) -> None:
    """The replica stays RUNNING, with a message that its node does not answer, until it goes on."""
    from transload_kubernetes.scheduler import create_scheduler

    app = AppDef(
        "outage", [Role("main", IMAGE, entrypoint="sh", args=["-c", "sleep 35; echo end"])]
    )
    cfg = {"namespace": namespace, "image_pull_policy": "IfNotPresent"}
    with Runner("tests", {"kubernetes": create_scheduler}) as runner:
        handle = runner.run(app, "kubernetes", cfg)
        eventually(lambda: runner.status(handle).state is AppState.RUNNING, 60)  # type: ignore[union-attr]
        try:
            cluster_do("stop", "kubelet")
            eventually(lambda: "does not answer" in runner.status(handle).msg, 60)  # type: ignore[union-attr]
            assert runner.status(handle).state is AppState.RUNNING  # type: ignore[union-attr]
        finally:
            cluster_do("start", "kubelet")
        final = runner.wait(handle, timeout=120)
        assert final is not None and final.state is AppState.SUCCEEDED
        scheduler = create_scheduler("other")
        assert list(log_lines(scheduler, handle.rpartition("/")[2], "main", 0)) == ["end\n"]
        scheduler.close()
        runner.delete(handle)


def test_a_kubelet_that_begins_again(namespace: str, transload_home: Any, eventually: Any) -> None:
    """While its kubelet does not know a pod yet, lines are whole or cannot be read, and results are
    waited for.
    """
    from transload_kubernetes.scheduler import create_scheduler

    app = AppDef(
        "outage",
        [
            Role(
                "main",
                IMAGE,
                entrypoint="sh",
                args=["-c", "echo line; echo 1 > $TRANSLOAD_TRACKER_BASE/x"],
            )
        ],
    )
    cfg = {"namespace": namespace, "image_pull_policy": "IfNotPresent", "helper_image": IMAGE}
    scheduler = create_scheduler("other")
    read: list[bytes] = []
    shown: list[tuple[str, ...]] = []
    refused: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            try:
                shown.append(
                    tuple(scheduler.log_read(app_id, LogQuery("main", 0, Stream.COMBINED)).lines)
                )
            except SchedulerUnavailable as exc:
                refused.append(str(exc))

    with Runner("tests", {"kubernetes": create_scheduler}) as runner:
        handle = runner.run(app, "kubernetes", cfg)
        app_id = handle.rpartition("/")[2]
        final = runner.wait(handle, timeout=120)
        assert final is not None and final.state is AppState.SUCCEEDED
        results = threading.Thread(
            target=lambda: read.append(scheduler.results_store(app_id).read("x"))
        )
        lines = threading.Thread(target=look)
        try:
            cluster_do("kill", "kubelet")
            results.start()
            lines.start()
        finally:
            cluster_do("start", "kubelet")
        results.join(60)
        eventually(lambda: shown, 30)
        over.set()
        lines.join(30)
        assert read == [b"1\n"]
        assert set(shown) == {("line\n",)}, refused[-3:]
        assert refused
        scheduler.close()
        runner.delete(handle)
