"""A job of Slurm's looks after a job of its own, which outlives it unless cancelled."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, Role

PROGRAM = """
import os, signal, sys
from transload.pipelines import Identity, Launch, interrupted
from transload.runner import Runner
from transload.specs import AppDef, Resource, Role
from transload_testing.steps import PlainStep

def leave(number, frame):
    raise SystemExit(128 + number)

mark = sys.argv[1]
signal.signal(signal.SIGTERM, leave)
role = Role("main", "", entrypoint="sleep", args=["600"], resource=Resource(cpu=1, gpu=0, memMB=100))
with Runner("host") as runner:
    launch = Launch(app=AppDef("inner", [role]), scheduler="slurm")
    one = PlainStep(runner, launch, Identity("host", ("here",), (mark,)), asked=interrupted)
    one.start()
    open(mark, "w").write(f"{os.getppid()} {os.getpid()} {one.handle}")
    one.run()
"""

SHELL = '"$@" & wait'
"""The outer process, which starts the inner one."""


@pytest.fixture
def cluster(patient_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where a terminated process has the time to ask whether somebody wanted its end."""
    monkeypatch.setenv("SLURM_CONF", str(patient_cluster.conf))
    monkeypatch.setenv("PATH", patient_cluster.env["PATH"])
    return patient_cluster


@pytest.mark.parametrize("end", ["cancel", "kill outer", "kill inner"])
def test_only_a_cancel_is_handed_on(
    runner: Runner,
    cluster: Any,
    transload_home: Path,
    tmp_path: Path,
    eventually: Callable[..., Any],
    end: str,
) -> None:
    """A cancelled job takes its own job along. A killed one, in any of its processes, leaves it."""
    (program := tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    mark = tmp_path / "mark"
    env = {
        name: os.environ[name]
        for name in ("SLURM_CONF", "PATH", "TRANSLOAD_HOME")
        if name in os.environ
    }
    words = ["-c", SHELL, "sh", sys.executable, str(program), str(mark)]
    outer = runner.run(
        AppDef("outer", [Role("main", "", entrypoint="sh", args=words, env=env)]), "slurm"
    )
    said = eventually(
        lambda: mark.exists() and len(found := mark.read_text().split()) == 3 and found, 90
    )
    pids, inner = [int(each) for each in said[:2]], said[2]
    eventually(lambda: runner.status(inner).state is AppState.RUNNING, 60)
    if end == "cancel":
        runner.cancel(outer)
    else:
        for pid in {"kill outer": pids[:1], "kill inner": pids[1:]}[end]:
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: runner.status(outer).is_terminal(), 90)
    if end == "cancel":
        eventually(lambda: runner.status(inner).state is AppState.CANCELLED, 60)
        return
    time.sleep(3.0)  # long enough for a cancel, if anybody had sent one
    assert runner.status(inner).state is AppState.RUNNING
    assert not runner.status(inner).cancel_requested
    runner.cancel(inner)
    eventually(lambda: runner.status(inner).is_terminal(), 60)
