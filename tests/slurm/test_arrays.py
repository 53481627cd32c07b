"""Arrays whose elements are cancelled, lost or forgotten one by one, on a real cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, AppStatus, Notice, macros, parse_app_handle

Eventually = Callable[..., Any]
ShellApp = Callable[..., AppDef]


def ended(runner: Runner, handle: str) -> AppStatus:
    """Wait for an app's end."""
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


@pytest.fixture
def waiting_element(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually, tmp_path: Path
) -> Callable[..., tuple[str, str, Path]]:
    """Start an array of two, of which the second waits for the first.

    Return handle, job and ``go``.
    """

    def start(**fields: Any) -> tuple[str, str, Path]:
        go = tmp_path / "go"
        command = f"echo {macros.replica_id}; until test -e {go}; do sleep 0.1; done"
        app = shell_app(command, num_replicas=2, **fields)
        handle = runner.run(app, "slurm", {"gang": False, "array_parallel": 1})
        eventually(lambda: list(runner.log_lines(handle, "main", 0)), 30)
        scheduler: Any = runner.scheduler("slurm")
        return handle, scheduler.apps.store.job_id(parse_app_handle(handle).app_id), go

    return start


def test_element_cancelled_while_it_waits(
    waiting_element: Any, runner: Runner, cluster: Any
) -> None:
    """An element that never ran is no success, and the job is CANCELLED."""
    handle, job, go = waiting_element()
    subprocess.run(["scancel", f"{job}_1"], env=cluster.env, check=True)
    go.touch()
    status = ended(runner, handle)
    assert status.state is AppState.CANCELLED, status
    assert "element 1 was cancelled" in status.msg
    assert [str(replica.state) for replica in status.roles[0].replicas] == [
        "SUCCEEDED",
        "CANCELLED",
    ]


def test_element_cancelled_but_enough_succeeded(
    waiting_element: Any, runner: Runner, cluster: Any
) -> None:
    """With ``min_replicas`` reached, one that was cancelled does not take the success away."""
    handle, job, go = waiting_element(min_replicas=1)
    subprocess.run(["scancel", f"{job}_1"], env=cluster.env, check=True)
    go.touch()
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert [str(replica.state) for replica in status.roles[0].replicas] == [
        "SUCCEEDED",
        "CANCELLED",
    ]


def test_running_element_cancelled_but_enough_succeeded(
    waiting_element: Any, runner: Runner, cluster: Any, eventually: Eventually
) -> None:
    """A cancelled running element leaves the other one, which is enough."""
    handle, job, go = waiting_element(min_replicas=1)
    subprocess.run(["scancel", f"{job}_0"], env=cluster.env, check=True)
    eventually(
        lambda: (
            "CANCELLED" in cluster.tool("squeue", "-h", "-t", "all", "-o", "%T", "-j", f"{job}_0")
        ),
        30,
    )
    go.touch()
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert [str(replica.state) for replica in status.roles[0].replicas] == [
        "CANCELLED",
        "SUCCEEDED",
    ]


def test_cancelled_array_is_cancelled(waiting_element: Any, runner: Runner) -> None:
    """An array that we cancel is CANCELLED as a whole, and says that it was asked for."""
    handle, _, _ = waiting_element()
    runner.cancel(handle)
    status = ended(runner, handle)
    assert status.state is AppState.CANCELLED, status
    assert (status.cancel_requested, status.msg) == (True, "cancelled on request")


def test_the_last_element_has_its_own_time(runner: Runner, shell_app: ShellApp) -> None:
    """Slurm's answer for the last element has others too, whose times do not count."""
    app = shell_app("sleep 1", num_replicas=2, notice=Notice(30))
    app.timeout = 600
    handle = runner.run(app, "slurm", {"gang": False, "array_parallel": 1})
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
