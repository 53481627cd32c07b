"""Progress and stalls are seen on a real engine."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, Role
from transload_docker import names
from transload_docker.engine import Engine

WAIT = "while :; do sleep 0.1; done"


def status_of(runner: Runner, handle: str) -> Any:
    """Return the status of a job, which is there and has not ended."""
    status = runner.status(handle)
    assert status is not None
    assert not status.is_terminal(), status
    return status


LIVELY = {
    "log": "while :; do echo line; sleep 0.3; done",
    "checkpoints": 'while :; do date > "$TRANSLOAD_CHECKPOINT_DIR/life"; sleep 0.3; done',
    "progress": (
        "i=0; while :; do i=$((i+1)); echo '{\"step\": '$i'}' > $TRANSLOAD_PROGRESS_FILE; "
        "sleep 0.3; done"
    ),
}


def test_what_shows_life_has_not_stalled(runner: Runner, shell: Any) -> None:
    """A line, a file and a report are signs of life."""
    app = shell(LIVELY)
    for role in app.roles:
        role.stall_after = 1.5
        role.checkpoints = True
    handle = runner.run(app, "docker")
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert "stalled" not in status_of(runner, handle).msg
        time.sleep(0.2)


def test_paused_has_not_stalled(
    runner: Runner, shell: Any, engine: Any, eventually: Callable[..., Any]
) -> None:
    """A container that is paused never alarms, however long, and its count begins anew after."""
    handle = runner.run(shell(f"echo up; {WAIT}", stall_after=1.0), "docker")
    eventually(lambda: list(runner.log_lines(handle, "main", 0)) == ["up\n"])
    (row,) = engine.client.containers()
    engine.client.pause(row["Id"])
    end = time.monotonic() + 2.5
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


def test_stacks_of_what_has_stalled(
    runner: Runner, python_and_shell: str, eventually: Callable[..., Any]
) -> None:
    """With ``dump`` a program with a handler writes its stacks into its log.

    One without a handler is not sent the signal, and goes on.
    """
    code = (
        "import faulthandler, signal, time\n"
        "faulthandler.register(signal.SIGUSR1)\n"
        "def hangs():\n    time.sleep(300)\n"
        "hangs()"
    )
    commands = {"handles": ["exec", sys.executable, "-c", shlex.quote(code)], "other": [WAIT]}
    roles = [
        Role(
            name,
            python_and_shell,
            entrypoint="sh",
            args=["-c", " ".join(command)],
            stall_after=2.0,
            on_stall="dump",
        )
        for name, command in commands.items()
    ]
    handle = runner.run(AppDef("test", roles), "docker")
    eventually(lambda: "role 'other'" in status_of(runner, handle).msg, timeout=40)
    eventually(lambda: "in hangs" in "".join(runner.log_lines(handle, "handles", 0)), timeout=40)
    assert "role 'handles'" in status_of(runner, handle).msg
    states = {role.replicas[0].state for role in status_of(runner, handle).roles}
    assert states == {AppState.RUNNING}


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
