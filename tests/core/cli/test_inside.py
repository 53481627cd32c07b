"""``signal``, ``exec`` and ``status`` tell and do what a person wants of a job that runs."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

HEEDS = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: print("got it", flush=True))
print("up", flush=True)
while True: time.sleep(0.05)
"""
AT_TERMINAL = """
import sys, time
print("terminal:", sys.stdin.isatty(), flush=True)
time.sleep(99)
"""


@pytest.fixture
def running(started: Any, invoke: Any, eventually: Any) -> Any:
    """``running(replicas)`` starts a job that heeds USR1, and returns its handle."""
    handles = []

    def start(replicas: int = 1) -> str:
        handle: str = started(HEEDS, "--replicas", str(replicas))
        handles.append(handle)
        eventually(lambda: invoke("log", handle).out.count("up") == replicas)
        return handle

    yield start
    for handle in handles:
        invoke("cancel", "--wait", handle)


def test_signal(invoke: Any, running: Any, eventually: Any) -> None:
    """A signal goes to the replica that is named, and its name is written to stdout."""
    handle = running(2)
    assert invoke("signal", f"{handle}/train/1", "USR1").lines == ["train/1"]
    eventually(lambda: "train/1 got it" in invoke("log", handle).out)
    assert "train/0 got it" not in invoke("log", handle).out
    assert invoke("signal", handle).lines == ["train/0", "train/1"]


def test_exec(spawn: Any, running: Any) -> None:
    """A command has the input of whoever typed it, the replica's variables, and its exit code."""
    handle = running(2)
    text = "cat; echo $TRANSLOAD_REPLICA_ID; exit 7"
    process = spawn("exec", f"{handle}/train/1", "--", "sh", "-c", text, stdin=subprocess.PIPE)
    out, err = process.communicate("hello\n", timeout=30)
    assert (process.returncode, out, err) == (7, "hello\n1\n", "")
    process = spawn("exec", f"{handle}/train/1", "sh", "-c", "kill -9 $$")
    process.communicate(timeout=30)
    assert process.returncode == 137


def test_exec_at_a_terminal(running: Any) -> None:
    """A command that is run at a terminal has it, and Ctrl-C ends the command."""
    handle = running()
    pid, fd = pty.fork()
    if pid == 0:
        words = ["-m", "transload", "exec", handle, sys.executable, "-c", AT_TERMINAL]
        os.execv(sys.executable, [sys.executable, *words])
    shown = b""
    while b"terminal: True" not in shown:
        shown += os.read(fd, 1000)
    os.write(fd, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("signal", "{}", "USR"), "USR1"),
        (("signal", "{}", "KILL"), "KILL"),
        (("signal", "{}/other"), "train/0"),
        (("signal", "{}/train/x"), "'x'"),
        (("exec", "{}", "true"), "train/0, train/1"),
        (("exec", "{}/train/2", "true"), "train/1"),
        (("exec", "{}/train/0/1", "true"), "HANDLE"),
        (("exec", "{}/train/0", "no-such-program"), "no-such-program"),
        (("exec", "{}"), "COMMAND"),
    ],
)
def test_refused(invoke: Any, running: Any, words: tuple[str, ...], named: str) -> None:
    """What is not there is refused, with what is allowed."""
    handle = running(2)
    result = invoke(*(word.format(handle) for word in words))
    assert result.code == 2
    assert named in result.err


def test_a_job_that_has_ended(invoke: Any, started: Any) -> None:
    """A job that has ended gets no signal and runs no command, and one that is gone is not found."""
    handle = started("pass")
    assert invoke("wait", handle).code == 0
    for words in (("signal", handle), ("exec", handle, "true")):
        result = invoke(*words)
        assert result.code == 2
        assert "SUCCEEDED" in result.err
    assert invoke("delete", handle).code == 0
    assert "no such job" in invoke("signal", handle).err


def test_status_says_for_how_long_a_job_is_silent(
    invoke: Any, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that has written nothing for a minute is named, with how long that is."""
    handle = running()
    assert not [line for line in invoke("status", handle).lines if line.startswith("no output")]
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 720)
    lines = invoke("status", handle).lines
    assert [line for line in lines if line.startswith("no output\tfor 12 min")]
    silent = invoke("status", handle, "--json").json["silent_for"]
    assert 720 <= silent["train/0"] < 780
