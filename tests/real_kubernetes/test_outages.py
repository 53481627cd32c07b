"""Outages of a cluster's parts, for one that REAL_CLUSTER can stop and start.

These tests run alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.runner import Runner
from transload.schedulers.api import LogQuery, Stream
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


def test_a_kubelet_that_begins_again(namespace: str, transload_home: Any, eventually: Any) -> None:
    """While its kubelet does not know a pod yet, lines are whole or cannot be read. Results come."""
    from transload_kubernetes.scheduler import create_scheduler

    app = AppDef(
        "outage",
        [
            Role(
                "main",
                IMAGE,
                entrypoint="sh",
                args=["-c", "echo line; echo '{\"x\": 1}' > $TRANSLOAD_RESULT_FILE"],
            )
        ],
    )
    cfg = {"namespace": namespace, "image_pull_policy": "IfNotPresent"}
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
            target=lambda: read.append(scheduler.results_store(app_id).read("0.json"))
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
        assert [json.loads(data)["results"] for data in read] == [{"x": 1}]
        assert set(shown) == {("line\n",)}, refused[-3:]
        assert refused
        scheduler.close()
        runner.delete(handle)
