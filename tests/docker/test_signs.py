"""Progress and stalls are seen on a real engine."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, Notice, Progress, Role, parse_app_handle
from transload_docker import names
from transload_docker.engine import Engine

WAIT = "while :; do sleep 0.1; done"


def status_of(runner: Runner, handle: str) -> Any:
    """Return the status of a job, which is there and has not ended."""
    status = runner.status(handle)
    assert status is not None
    assert not status.is_terminal(), status
    return status


def test_progress_while_it_runs_and_at_its_end(
    runner: Runner, shell: Any, eventually: Callable[..., Any]
) -> None:
    """Each report of progress reaches the status, with the time that is left.

    The last one stays.
    """
    program = (
        "for i in $(seq 0 2 100); do echo '{\"step\": '$i', \"total\": 200}' "
        '> "$TRANSLOAD_PROGRESS_FILE"; sleep 0.2; done'
    )
    handle = runner.run(shell(program), "docker")
    first = eventually(lambda: status_of(runner, handle).progress, timeout=30)
    further = eventually(
        lambda: (
            (found := status_of(runner, handle).progress).step > first.step
            and found.eta_seconds
            and found
        ),
        timeout=30,
    )
    assert 5 < further.eta_seconds < 60
    status = runner.wait(handle, timeout=60)
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert status.progress is not None
    assert (status.progress.step, status.progress.fraction) == (100, 0.5)
    again = runner.status(handle)
    assert again is not None
    assert isinstance(again.progress, Progress)
    assert again.progress.history[0][0] <= first.at + 0.1  # it has tenths of a second


def test_progress_over_an_interruption(
    runner: Runner, shell: Any, engine: Any, eventually: Callable[..., Any]
) -> None:
    """The status says at which step a job was interrupted, until the next attempt reports."""
    program = (
        'test -e "$TRANSLOAD_PROGRESS_FILE" && echo old; trap "exit 75" TERM; '
        'if [ "$TRANSLOAD_INTERRUPTIONS" = 0 ]; '
        'then echo \'{"step": 4200}\' > "$TRANSLOAD_PROGRESS_FILE"; fi; '
        f"echo up; {WAIT}"
    )
    handle = runner.run(shell(program, notice=Notice(30), retry_delay=0.0), "docker")
    eventually(lambda: status_of(runner, handle).progress, timeout=30)
    app_id = parse_app_handle(handle).app_id
    engine.client.stop(names.container_name(app_id, "main", 0, 0))
    status = eventually(
        lambda: (found := status_of(runner, handle)).roles[0].replicas[0].interruptions and found,
        timeout=30,
    )
    assert "was interrupted (requested) at step 4,200 after" in status.msg
    assert status.roles[0].replicas[0].earlier[0].step == 4200
    eventually(lambda: list(runner.log_lines(handle, "main", 0)) == ["up\n", "up\n"])


@pytest.mark.parametrize("left", ["ln -s /etc/shadow", "mkfifo", "mkdir", "ln -s /dev/zero"])
def test_progress_file_that_is_none(
    runner: Runner, shell: Any, eventually: Callable[..., Any], left: str
) -> None:
    """What a container leaves in the place of its report leads nowhere on this machine, and costs
    nothing else.
    """
    place = '"$TRANSLOAD_PROGRESS_FILE"'
    handle = runner.run(shell(f"{left} {place}; echo up; sleep 2"), "docker")
    status = runner.wait(handle, timeout=60)
    assert status is not None
    assert (status.state, status.progress) == (AppState.SUCCEEDED, None)


def test_stalled_and_going_on(
    runner: Runner, shell: Any, engine: Any, eventually: Callable[..., Any]
) -> None:
    """A status says so, and says it no more once there is another sign of life."""
    program = f"echo up; until [ -e /tmp/go ]; do sleep 0.1; done; echo on; {WAIT}"
    handle = runner.run(shell(program, stall_after=2.0), "docker")
    text = "role 'main', replica 0 has stalled: no progress, log line or result for 2 s"
    eventually(lambda: status_of(runner, handle).msg == text, timeout=30)
    (row,) = engine.client.containers()
    command = engine.client.exec_create(row["Id"], ["touch", "/tmp/go"])
    engine.client.exec_start(command)
    eventually(lambda: status_of(runner, handle).msg == "", timeout=30)


@pytest.mark.parametrize(
    "program",
    [
        "while :; do echo line; sleep 0.3; done",
        "while :; do printf '\\r|#####   |'; sleep 0.3; done",
        'while :; do date > "$TRANSLOAD_TRACKER_BASE/.life"; sleep 0.3; done',
        'while :; do date > "$TRANSLOAD_CHECKPOINT_DIR/life"; sleep 0.3; done',
        "i=0; while :; do i=$((i+1)); echo '{\"step\": '$i'}' > $TRANSLOAD_PROGRESS_FILE; sleep 0.3; done",
        "kill -STOP $$",
    ],
    ids=["log", "bar", "results", "checkpoints", "progress", "stopped"],
)
def test_what_shows_life_has_not_stalled(runner: Runner, shell: Any, program: str) -> None:
    """A line or a part of one, a file and a report are signs of life.

    A stopped program shows none.
    """
    handle = runner.run(shell(program, stall_after=1.5, checkpoints=True), "docker")
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert "stalled" not in status_of(runner, handle).msg
        time.sleep(0.2)


def test_paused_has_not_stalled(
    runner: Runner, shell: Any, engine: Any, eventually: Callable[..., Any]
) -> None:
    """A container that is paused never alarms, however long, and its count begins anew after."""
    handle = runner.run(shell(f"echo up; {WAIT}", stall_after=2.0), "docker")
    eventually(lambda: list(runner.log_lines(handle, "main", 0)) == ["up\n"])
    (row,) = engine.client.containers()
    engine.client.pause(row["Id"])
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert "stalled" not in status_of(runner, handle).msg
        time.sleep(0.2)
    engine.client.unpause(row["Id"])
    eventually(lambda: "stalled" in status_of(runner, handle).msg, timeout=30)


@pytest.fixture(scope="module")
def python_and_shell(private_engine: Any) -> str:
    """Name of an image with this Python and a shell."""
    name: str = private_engine.python_image("transload-test/stacks:1", packages=(), applets="sh")
    return name


@pytest.mark.parametrize("wrapped", [False, True])
def test_stacks_of_what_has_stalled(
    runner: Runner, python_and_shell: str, eventually: Callable[..., Any], wrapped: bool
) -> None:
    """With ``dump`` programs with a handler write their stacks, which the replica's error has.

    A shell around such a program has no handler, and goes on.
    """
    code = (
        "import faulthandler, signal, time\n"
        "faulthandler.register(signal.SIGUSR1)\n"
        "def hangs():\n    time.sleep(300)\n"
        "hangs()"
    )
    role = Role("main", python_and_shell, entrypoint=sys.executable, args=["-c", code])
    if wrapped:
        role.entrypoint = "sh"
        role.args = ["-c", f"{sys.executable} -c '{code}'; echo never"]
    role.stall_after = 2.0
    role.on_stall = "dump"
    handle = runner.run(AppDef("test", [role]), "docker")
    replica = eventually(
        lambda: (
            (found := status_of(runner, handle).roles[0].replicas[0]).structured_error_msg
            not in ("", "<NONE>")
            and found
        ),
        timeout=40,
    )
    message = json.loads(replica.structured_error_msg)["message"]
    assert "has stalled" in message["message"]
    assert "in hangs" in message["extraInfo"]["py_callstack"]
    assert replica.state is AppState.RUNNING


def test_what_cannot_write_its_stacks_goes_on(
    runner: Runner, shell: Any, eventually: Callable[..., Any]
) -> None:
    """A program without a handler for the signal is not sent it, which would end it."""
    handle = runner.run(
        shell(f"echo up; {WAIT}", stall_after=1.0, on_stall="dump", stall_signal="USR2"), "docker"
    )
    eventually(lambda: "stalled" in status_of(runner, handle).msg, timeout=30)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert "stalled" in status_of(runner, handle).msg
        time.sleep(0.2)


def test_progress_where_nothing_is_mounted(
    runner: Runner, shell: Any, engine: Any, eventually: Callable[..., Any]
) -> None:
    """The report of a job without a mounted folder is read out of its container."""
    program = f"echo '{{\"step\": 3}}' > $TRANSLOAD_PROGRESS_FILE; echo up; {WAIT}"
    handle = runner.run(shell(program), "docker", tracker_base="http://127.0.0.1:9/none")
    progress = eventually(lambda: status_of(runner, handle).progress, timeout=40)
    assert progress.step == 3
    (row,) = engine.client.containers()
    assert row["Mounts"] == []
    own = Engine(engine.url)
    assert own.read_file(row["Id"], names.PROGRESS_FILE) == b'{"step": 3}\n'
    assert own.read_file(row["Id"], "/none") == b""
    own.close()
