"""Notices on a real engine reach the right containers as often as they should."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppState, Notice, RetryPolicy, parse_app_handle
from transload_docker import names, notices
from transload_docker.engine import Engine, EngineError
from transload_docker.home import Home
from transload_docker.plan import NOTICE

STUBBORN = "trap 'echo warned' TERM USR1; echo up; while :; do sleep 0.1; done"
FIRST_ASKS = (
    'if [ "$TRANSLOAD_INTERRUPTIONS" = 0 ]; then trap "exit 75" TERM; echo up; '
    "while :; do sleep 0.1; done; fi; "
    'echo "again $TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS"'
)
ALWAYS_ASKS = 'trap "exit 75" TERM; echo up; while :; do sleep 0.1; done'


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


def supervisors(home: Path) -> list[int]:
    """Return the pids of the supervisors of a state folder."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            environ = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if b"transload_docker.supervisor" in command and str(home).encode() in environ:
            found.append(int(entry))
    return found


def strike(home: Path, eventually: Callable[..., Any]) -> None:
    """Kill the supervisor, and wait until it is gone."""
    for pid in supervisors(home):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not supervisors(home))


def stop(engine: Any, handle: str, attempt: int = 0, k: int = 0) -> None:
    """Do ``docker stop``."""
    name = names.container_name(parse_app_handle(handle).app_id, "main", k, attempt)
    engine.client.stop(name)


def test_a_cancel_sends_one_notice(
    runner: Runner,
    shell: Any,
    transload_home: Path,
    up: Callable[..., None],
    eventually: Callable[..., Any],
) -> None:
    """The notice of a cancel comes once, though its supervisor is killed before it can kill.

    The next supervisor kills the program when its time is over.
    """
    handle = runner.run(shell(STUBBORN, notice=Notice(6, "USR1")), "docker")
    up(handle)
    asked = time.time()
    runner.cancel(handle)
    eventually(lambda: "warned\n" in lines(runner, handle))
    strike(transload_home, eventually)
    status = ends(runner, handle)
    assert (status.state, status.msg) == (AppState.CANCELLED, "cancelled on request")
    assert status.roles[0].replicas[0].exit_code == -signal.SIGKILL
    assert lines(runner, handle).count("warned\n") == 1
    assert 5.5 < status.roles[0].replicas[0].end_time - asked < 15


def test_a_notice_that_was_noted_and_not_sent(
    runner: Runner,
    shell: Any,
    engine: Any,
    transload_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    up: Callable[..., None],
    eventually: Callable[..., Any],
) -> None:
    """Who died between noting a notice and its signal has a successor who sends it."""
    handle = runner.run(shell(STUBBORN, notice=Notice(8)), "docker")
    up(handle)
    strike(transload_home, eventually)
    own = Engine(engine.url)
    home = Home(engine.url)
    app_id = parse_app_handle(handle).app_id
    facts = own.facts(app_id)[app_id]
    assert facts.plan is not None

    def die(*_: object) -> None:
        raise EngineError("struck", 500)

    with monkeypatch.context() as patch:
        patch.setattr(own, "signal", die)
        with home.lock(app_id), pytest.raises(EngineError, match="struck"):
            notices.send(own, facts.plan, facts.containers, "", home.owner)
    assert any(kind.startswith(NOTICE) for kind in own.notes(app_id)[app_id].kinds)
    assert "warned\n" not in lines(runner, handle)

    def is_warned() -> bool:
        runner.status(handle)  # whoever looks has a killed supervisor replaced
        return lines(runner, handle).count("warned\n") == 1

    eventually(is_warned, timeout=30)
    eventually(lambda: not own.notes(app_id)[app_id].undelivered(home.owner))
    own.close()


@pytest.mark.parametrize(
    ("at_notice", "state", "words"),
    [
        ("exit 0", AppState.SUCCEEDED, ""),
        ("exit 75", AppState.FAILED, "timed out after 6 s"),
        ("exit 3", AppState.FAILED, "exit code 3"),
        ("echo warned", AppState.FAILED, "timed out after 6 s"),
    ],
)
def test_a_notice_before_the_limit(
    runner: Runner, shell: Any, at_notice: str, state: AppState, words: str
) -> None:
    """It comes so long before the limit, and the limit holds."""
    program = f'trap "{at_notice}" TERM; while :; do sleep 0.1; done'
    handle = runner.run(shell(program, timeout=6.0, notice=Notice(4)), "docker")
    status = ends(runner, handle)
    assert status.state is state, status
    assert words in status.msg
    replica = status.roles[0].replicas[0]
    assert replica.end_time - replica.start_time < 12
    if at_notice == "echo warned":
        assert lines(runner, handle) == ["warned\n"]
        assert replica.exit_code == -signal.SIGKILL
    else:
        assert replica.end_time - replica.start_time < 5.5


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


def test_asking_to_go_on_without_a_notice_is_a_failure(runner: Runner, shell: Any) -> None:
    """Exit code 75 means nothing by itself, and a kill by others is no notice."""
    status = ends(runner, runner.run(shell("exit 75", checkpoints=True), "docker"))
    assert (status.state, status.roles[0].replicas[0].interruptions) == (AppState.FAILED, 0)
    assert "failed (exit code 75)" in status.msg


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


def test_interruptions_are_bounded(
    runner: Runner, shell: Any, engine: Any, up: Callable[..., None], eventually: Any
) -> None:
    """A job has failed when its interruptions are used up, and its status tells of each of them."""
    app = shell(ALWAYS_ASKS, notice=Notice(30), max_interruptions=1, retry_delay=0.0)
    handle = runner.run(app, "docker")
    up(handle)
    stop(engine, handle)
    up(handle, 2)
    status = runner.status(handle)
    assert status is not None
    assert "was interrupted (requested)" in status.msg
    assert "started again, 1st of 1" in status.msg
    stop(engine, handle, attempt=1)
    status = ends(runner, handle)
    assert status.state is AppState.FAILED
    assert "its 1 interruptions are used up" in status.msg
    assert [each.cause for each in status.roles[0].replicas[0].earlier] == ["requested"]


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


@pytest.mark.parametrize("interrupted", [True, False])
def test_results_after_an_interruption_are_merged(
    runner: Runner, shell: Any, engine: Any, up: Callable[..., None], interrupted: bool
) -> None:
    """Results from before an interruption stay, and newer values win.

    After a failure only those of the last attempt count.
    """
    said = (
        'say() { echo "{\\"schema\\": 1, \\"key\\": \\"$1\\", \\"results\\": {\\"x\\": $2}, '
        '\\"run\\": \\"$TRANSLOAD_JOB_ID\\", \\"writer\\": {\\"role\\": \\"main\\", '
        '\\"replica\\": 0, \\"attempt\\": $TRANSLOAD_RETRY}}" > $TRANSLOAD_TRACKER_BASE/$1.json; }; '
    )
    program = (
        f'{said} if [ "$TRANSLOAD_RETRY$TRANSLOAD_INTERRUPTIONS" = 00 ]; '
        f"then say a 1; say b 1; trap 'exit {75 if interrupted else 3}' TERM; echo up; "
        "while :; do sleep 0.1; done; fi; say b 2"
    )
    app = shell(program, notice=Notice(30), max_retries=1, retry_delay=0.0)
    handle = runner.run(app, "docker")
    up(handle)
    stop(engine, handle)
    assert ends(runner, handle).state is AppState.SUCCEEDED
    expected = {"b": {"x": 2}}
    if interrupted:
        expected["a"] = {"x": 1}
    assert runner.results(handle).results == expected
