"""Notices on a real engine reach the right containers as often as they should."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppState, Notice, RetryPolicy, parse_app_handle
from transload_docker import names

STUBBORN = "trap 'echo warned' TERM USR1; echo up; while :; do sleep 0.1; done"
FIRST_ASKS = (
    'if [ "$TRANSLOAD_INTERRUPTIONS" = 0 ]; then trap "exit 75" TERM; echo up; '
    "while :; do sleep 0.1; done; fi; "
    'echo "again $TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS"'
)


def ends(runner: Runner, handle: str) -> Any:
    """Wait for the end of a job, and return its status."""
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


def lines(runner: Runner, handle: str, role: str = "main", k: int = 0) -> list[str]:
    """Return the log of a replica."""
    return list(runner.log_lines(handle, role, k))


@pytest.fixture
def up(runner: Runner, eventually: Callable[..., Any]) -> Callable[..., None]:
    """``up(handle, times)`` waits until a replica has written ``up`` so often."""

    def wait(handle: str, times: int = 1, k: int = 0) -> None:
        eventually(lambda: lines(runner, handle, k=k).count("up\n") >= times, timeout=30)

    return wait


def stop(engine: Any, handle: str, attempt: int = 0, k: int = 0) -> None:
    """Do ``docker stop``."""
    name = names.container_name(parse_app_handle(handle).app_id, "main", k, attempt)
    engine.client.stop(name)


def test_a_cancel_sends_one_notice(
    runner: Runner,
    shell: Any,
    strike: Callable[[str], None],
    up: Callable[..., None],
    eventually: Callable[..., Any],
) -> None:
    """The notice of a cancel comes once, though its keeper is killed before it can kill.

    The next keeper kills the program when its time is over.
    """
    handle = runner.run(shell(STUBBORN, notice=Notice(6, "USR1")), "docker")
    up(handle)
    asked = time.time()
    runner.cancel(handle)
    eventually(lambda: "warned\n" in lines(runner, handle))
    strike(handle)
    status = ends(runner, handle)
    assert status.state is AppState.CANCELLED
    assert status.msg.startswith("cancelled on request of ")
    assert status.roles[0].replicas[0].exit_code == -signal.SIGKILL
    assert lines(runner, handle).count("warned\n") == 1
    assert 5.5 < status.roles[0].replicas[0].end_time - asked < 15


def test_docker_stop_is_a_notice(
    runner: Runner, shell: Any, engine: Any, up: Callable[..., None]
) -> None:
    """Who is stopped by others and asks to go on is started again, which spends no retry."""
    handle = runner.run(shell(FIRST_ASKS, notice=Notice(30)), "docker")
    up(handle)
    stop(engine, handle)
    status = ends(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert lines(runner, handle)[-1] == "again 0 1\n"
    replica = status.roles[0].replicas[0]
    assert (replica.restarts, replica.interruptions, status.num_restarts) == (0, 1, 0)
    (before,) = replica.earlier
    assert (before.cause, before.exit_code) == ("requested", 75)
    found = engine.client.inspect_container(replica.hostname)["Config"]
    assert (found["StopSignal"], found["StopTimeout"]) == ("SIGTERM", 30)


def test_docker_stop_that_is_not_heeded(
    runner: Runner, shell: Any, engine: Any, up: Callable[..., None]
) -> None:
    """Who is killed when the time of that notice is over was interrupted too, not at fault."""
    program = (
        'test "$TRANSLOAD_INTERRUPTIONS" = 1 && echo "again $TRANSLOAD_RETRY" && exit; '
        'trap "" TERM; echo up; while :; do sleep 0.1; done'
    )
    handle = runner.run(shell(program, notice=Notice(1), retry_delay=0.0), "docker")
    up(handle)
    stop(engine, handle)
    status = ends(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert lines(runner, handle)[-1] == "again 0\n"
    (before,) = status.roles[0].replicas[0].earlier
    assert (before.cause, before.exit_code) == ("requested", -signal.SIGKILL)


def test_a_stop_by_others_is_named(
    runner: Runner, shell: Any, engine: Any, up: Callable[..., None], eventually: Any
) -> None:
    """A program that somebody's stop has ended has failed, and the reason names the stop.

    There is no such reason where the program ends with its job.
    """
    handle = runner.run(shell("echo up; exec sleep 300"), "docker")
    up(handle)
    stop(engine, handle)
    status = ends(runner, handle)
    assert status.state is AppState.FAILED
    assert "killed by SIGTERM: somebody else stopped its container" in status.msg
    app = shell({"main": "echo up; sleep 2; exit 3", "other": "exec sleep 300"})
    status = ends(runner, runner.run(app, "docker"))
    assert "somebody else" not in str(status)


def test_an_interruption_of_one_is_that_of_all(
    runner: Runner, shell: Any, engine: Any, up: Callable[..., None]
) -> None:
    """With APPLICATION all others get a notice too, and all begin the next attempt together."""
    app = shell(FIRST_ASKS, replicas=2, notice=Notice(30), retry_policy=RetryPolicy.APPLICATION)
    handle = runner.run(app, "docker")
    up(handle)
    up(handle, k=1)
    stop(engine, handle)
    status = ends(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert [each.interruptions for each in status.roles[0].replicas] == [1, 1]
    assert lines(runner, handle, k=1)[-1] == "again 0 1\n"
