"""Progress and stalls are seen on a real engine."""

from __future__ import annotations

import json
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
    "bar": "while :; do printf '\\r|#####   |'; sleep 0.3; done",
    "checkpoints": 'while :; do date > "$TRANSLOAD_CHECKPOINT_DIR/life"; sleep 0.3; done',
    "progress": (
        "i=0; while :; do i=$((i+1)); echo '{\"step\": '$i'}' > $TRANSLOAD_PROGRESS_FILE; "
        "sleep 0.3; done"
    ),
    "stopped": "kill -STOP $$",
}


def test_what_shows_life_has_not_stalled(runner: Runner, shell: Any) -> None:
    """A line or a part of one, a file and a report are signs of life.

    A stopped program shows none.
    """
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
    """With ``dump`` programs with a handler write their stacks, which the replica's error has.

    A shell around such a program has no handler, and goes on.
    """
    code = (
        "import faulthandler, signal, time\n"
        "faulthandler.register(signal.SIGUSR1)\n"
        "def hangs():\n    time.sleep(300)\n"
        "hangs()"
    )
    wrapped = f"{sys.executable} -c '{code}'; echo never"
    role = Role("main", python_and_shell, entrypoint="sh", args=["-c", wrapped])
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
