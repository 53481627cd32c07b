"""A program that keeps checkpoints finishes, whoever stops its containers, and repeats no step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.runner import Runner
from transload.specs import AppDef, AppState, BindMount, Notice, Role, parse_app_handle
from transload_docker import names

CORE = str(Path(transload.__file__).parents[1])
PROGRAM = """
import json, time
from transload.runtime import (
    exit_interrupted,
    interrupted,
    latest_checkpoint,
    progress,
    save_checkpoint,
)
folder = latest_checkpoint()
state = json.loads((folder / "state").read_text()) if folder else {"step": 0, "weight": 0.5}
interrupted()
while state["step"] < 120:
    state["step"] += 1
    state["weight"] = (state["weight"] * 1.1 + state["step"]) % 7
    print("step", state["step"], flush=True)
    progress(step=state["step"], total=120)
    time.sleep(0.03)
    if interrupted():
        save_checkpoint(lambda folder: (folder / "state").write_text(json.dumps(state)))
        exit_interrupted()
print("weight", state["weight"])
"""


@pytest.fixture
def training(python_image: str) -> AppDef:
    """A job of one replica, which counts to 120 and has a weight at its end."""
    role = Role(
        "trainer",
        python_image,
        entrypoint=sys.executable,
        args=["-c", PROGRAM],
        env={"PYTHONPATH": CORE},
        mounts=[BindMount(CORE, CORE, read_only=True)],
        checkpoints=True,
        notice=Notice(30),
        retry_delay=0.1,
    )
    return AppDef("training", [role])


def undisturbed() -> str:
    """Return the last line of the program, run by hand."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines(keepends=True)[-1]


@pytest.mark.slow
@pytest.mark.parametrize("keeper_dies", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_stopped_twice(
    runner: Runner,
    training: AppDef,
    engine: Any,
    strike: Callable[[str], None],
    eventually: Callable[..., Any],
    keeper_dies: bool,
) -> None:
    """A job stopped twice does each step once, also if nobody watched when it was stopped.

    The weight is that of an undisturbed run to the last bit.
    """
    handle = runner.run(training, "docker")
    app_id = parse_app_handle(handle).app_id
    for attempt, step in enumerate((30, 70)):
        eventually(lambda: f"step {step}\n" in runner.log_lines(handle, "trainer", 0), timeout=30)  # noqa: B023
        if keeper_dies:
            strike(handle)
        engine.client.stop(names.container_name(app_id, "trainer", 0, attempt))
        runner.status(handle)
    status = runner.wait(handle, timeout=60)
    assert status is not None
    assert status.state is AppState.SUCCEEDED, status
    assert status.num_restarts == 0
    replica = status.roles[0].replicas[0]
    assert replica.interruptions == 2
    assert [each.cause for each in replica.earlier] == ["requested", "requested"]
    lines = list(runner.log_lines(handle, "trainer", 0))
    assert lines[:-1] == [f"step {step}\n" for step in range(1, 121)]
    assert lines[-1] == undisturbed()
    assert status.progress is not None
    assert status.progress.step == 120
    store = runner.scheduler("docker").checkpoint_store(app_id, "trainer")
    assert store is not None
    kept, refused = store.walk("")
    assert refused == {}
    assert json.loads(store.read(max(kept)))["step"] >= 70
