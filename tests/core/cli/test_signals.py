"""Signals and a reader that leaves end the command, and leave or cancel the job."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LOOP = "import time\nprint('up')\nwhile True: time.sleep(0.05)"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\n"


def _up(process: Any) -> None:
    assert process.stdout.readline() == "train/0 up\n"


def test_first_ctrl_c_cancels(spawn: Any, invoke: Any, component_file: str) -> None:
    """The first Ctrl-C cancels the job, says so, and waits for its end, with exit code 4."""
    process = spawn("run", "--app-id", "app", component_file, "--code", LOOP)
    _up(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 4
    assert "SIGINT: cancelling local://transload/app; a second signal leaves without waiting" in err
    assert "CANCELLED after" in err
    assert "Traceback" not in err
    assert invoke("status", "app", "--json").json["state"] == "CANCELLED"


def test_ctrl_c_that_ends_the_reader_too(
    invoke: Any, component_file: str, eventually: Any, tmp_path: Path
) -> None:
    """Ctrl-C in ``transload run … 2>&1 | tee log`` ends ``tee`` as well. The job is cancelled."""
    command = [sys.executable, "-m", "transload", "run", "--app-id", "app", component_file]
    line = f"{shlex.join([*command, '--code', LOOP])} 2>&1 | tee {tmp_path / 'log'}"
    with open(tmp_path / "shown", "wb") as shown:
        shell = subprocess.Popen(["sh", "-c", line], stdout=shown, start_new_session=True)
    try:
        eventually(lambda: "train/0 up" in (tmp_path / "shown").read_text(), 60)
        os.killpg(shell.pid, signal.SIGINT)
        eventually(lambda: invoke("status", "app", "--json").json["state"] == "CANCELLED", 30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait(60)


@pytest.mark.parametrize("count", [1, 3])
def test_sigterm_leaves_the_app(
    spawn: Any, invoke: Any, component_file: str, gate: Any, count: int
) -> None:
    """SIGTERM, also repeated, ends the command, and the job goes on."""
    code, open_gate = gate
    process = spawn("run", "--app-id", "app", component_file, "--code", f"print('up')\n{code}")
    _up(process)
    for _ in range(count):
        process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode in ([143] if count == 1 else [143, 130, -signal.SIGTERM])
    assert "local://transload/app" in err
    assert "goes on" in err
    assert "cancelling" not in err
    assert "Traceback" not in err
    assert invoke("status", "app", "--json").json["state"] == "RUNNING"
    open_gate()
    assert invoke("wait", "app").code == 0


@pytest.mark.parametrize("asked", [True, False])
def test_a_command_inside_a_job(
    invoke: Any,
    component_file: str,
    transload_home: Path,
    tmp_path: Path,
    eventually: Any,
    asked: bool,
) -> None:
    """Cancelling a job ends a job that its program `run` started. A dead process does not."""
    words = [
        sys.executable,
        "-m",
        "transload",
        "run",
        "--app-id",
        "inner",
        component_file,
        "--code",
        LOOP,
    ]
    shell = 'echo $$ > "$1"; shift; "$@" & wait'
    outer = ["sh", "-c", shell, "sh", str(tmp_path / "pid"), *words]
    assert invoke("run", "-d", "--app-id", "outer", "--", *outer).code == 0
    inner = lambda: invoke("status", "inner", "--json")  # noqa: E731
    eventually(lambda: (found := inner()).code in (0, 5) and found.json["state"] == "RUNNING", 30)
    eventually(lambda: "train/0 up" in invoke("log", "outer").out, 30)
    if asked:
        assert invoke("cancel", "outer").code == 0
    else:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert invoke("wait", "outer").code == (4 if asked else 1)
    if asked:
        assert invoke("wait", "inner").code == 4
    else:
        assert inner().json["state"] == "RUNNING"
        assert invoke("cancel", "inner").code == 0
        assert invoke("wait", "inner").code == 4


def test_second_signal_leaves_at_once(
    spawn: Any, invoke: Any, component_file: str, gate: Any
) -> None:
    """The second Ctrl-C leaves with 130 while the app is still being ended."""
    code, open_gate = gate
    process = spawn(
        "run", "--app-id", "app", "--notice", "60s", component_file, "--code", STUBBORN + code
    )
    _up(process)
    process.send_signal(signal.SIGINT)
    while "cancelling" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130  # "at once": long before its time after the notice is over
    err = process.stderr.read()
    assert "left; local://transload/app was asked to end" in err
    assert "Traceback" not in err
    assert invoke("status", "app", "--json").json["state"] == "RUNNING"
    open_gate()
    assert invoke("wait", "app").code == 4


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_the_app_outlives_the_command(
    spawn: Any, invoke: Any, component_file: str, gate: Any, number: signal.Signals
) -> None:
    """A killed command leaves the job running, and another attaches to all of its log."""
    code, open_gate = gate
    process = spawn(
        "run", "--app-id", "app", component_file, "--code", f"print('up')\n{code}\nprint('end')"
    )
    _up(process)
    process.send_signal(number)
    assert process.wait(10) == -number
    assert invoke("status", "app", "--json").json["state"] == "RUNNING"
    again = spawn("log", "-f", "app")
    _up(again)
    open_gate()
    out, _ = again.communicate(timeout=20)
    assert (out, again.returncode) == ("train/0 end\n", 0)
    assert invoke("wait", "app").code == 0


def test_ctrl_c_of_an_onlooker(spawn: Any, invoke: Any, started: Any) -> None:
    """Ctrl-C in ``log -f`` and ``wait`` leaves with 130, and the job goes on."""
    handle = started(LOOP)
    for command in (["log", "-f", handle], ["wait", handle]):
        process = spawn(*command)
        if command[0] == "log":
            _up(process)
        else:
            assert "RUNNING" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 130
        assert "Traceback" not in err
    assert invoke("status", handle, "--json").json["state"] == "RUNNING"
    assert invoke("cancel", "--wait", handle).code == 0


def test_reader_that_leaves(spawn: Any, invoke: Any, component_file: str) -> None:
    """``run … | head -1`` ends the command quietly with 141, and the job goes on."""
    code = "import time\nwhile True:\n    print('line'); time.sleep(0.01)"
    process = spawn("run", "--app-id", "app", component_file, "--code", code)
    assert process.stdout.readline() == "train/0 line\n"
    process.stdout.close()
    assert process.wait(10) == 141
    err = process.stderr.read()
    assert "the reader of the logs has gone; local://transload/app goes on" in err
    assert "Traceback" not in err and "Exception" not in err
    assert invoke("status", "app", "--json").json["state"] == "RUNNING"
    assert invoke("cancel", "--wait", "app").code == 0


def test_head(component_file: str, started: Any, invoke: Any) -> None:
    """``log | head -2`` prints two lines and nothing on stderr."""
    handle = started("for i in range(200000): print(i)")
    assert invoke("wait", handle).code == 0
    script = f"set -o pipefail; {sys.executable} -m transload log {handle} | head -2"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
    assert result.stdout == "train/0 0\ntrain/0 1\n"
    assert (result.stderr, result.returncode) == ("", 141)


def test_ignored_interrupts_stay_ignored(
    spawn: Any, invoke: Any, component_file: str, gate: Any
) -> None:
    """A command started with SIGINT ignored (nohup, a script's background job) does not cancel by
    it.
    """
    code, open_gate = gate
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = spawn("run", component_file, "--code", f"print('up')\n{code}")
    finally:
        signal.signal(signal.SIGINT, before)
    _up(process)
    process.send_signal(signal.SIGINT)
    open_gate()
    assert process.wait(10) == 0
