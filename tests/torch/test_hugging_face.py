"""Hugging Face's own Trainer is interrupted, goes on, and comes to the same end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from transload.runner import get_runner
from transload.specs import AppDef, AppState, Progress, Role

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # a busy machine imports for minutes
    pytest.mark.skipif(find_spec("transformers") is None, reason="not run: no transformers"),
]

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "checkpoints.md"
WITH_NOTICE = """
import os, runpy, signal, sys, time
from transformers.trainer_callback import CallbackHandler
plain = CallbackHandler.on_step_end

def on_step_end(self, args, state, control):
    if sys.argv[2:]:
        time.sleep(0.15)  # the Trainer saves three seconds after the signal
    if str(state.global_step) in sys.argv[2:]:
        os.kill(os.getpid(), signal.SIGTERM)
    return plain(self, args, state, control)

CallbackHandler.on_step_end = on_step_end
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs a program that gets its notice at a step."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program of the page, as a file."""
    pattern = r"^```python\n# train_hugging_face.py\n(.*?)^```"
    (code,) = re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    file = tmp_path / "train_hugging_face.py"
    file.write_text(code, encoding="utf-8")
    return file


def run(program: Path, folder: Path, *steps: int) -> int:
    """Run the program as an attempt of a job that is kept in a folder, and return its exit code."""
    (folder / "results").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["TRANSLOAD_CHECKPOINT_DIR"] = str(folder / "checkpoints")
    environment["TRANSLOAD_TRACKER_BASE"] = str(folder / "results")
    command = [sys.executable, "-c", WITH_NOTICE, str(program), *map(str, steps)]
    return subprocess.run(command, env=environment, timeout=400).returncode


def loss(folder: Path) -> float:
    """Return the loss that was reported."""
    found = json.loads((folder / "results" / "0.json").read_text())["results"]
    value: float = found["loss"]
    return value


def test_the_program_of_the_page_goes_on(tmp_path: Path, program: Path) -> None:
    """It saves at the notice, ends with 75, goes on, and comes to the loss of a run without any."""
    whole = tmp_path / "whole"
    broken = tmp_path / "broken"
    assert run(program, whole) == 0
    assert run(program, broken, 5) == 75
    saved = [int(path.name.partition("-")[2]) for path in (broken / "checkpoints").iterdir()]
    assert 5 < max(saved) < 60
    assert run(program, broken) == 0
    assert loss(broken) == loss(whole)


def test_a_trainer_posts_its_progress(
    tmp_path: Path, program: Path, transload_home: Path, eventually: Any
) -> None:
    """With a server for its progress the program of the page shows it without a changed line, and
    its loss is a curve.
    """
    words = ["-c", WITH_NOTICE, str(program), "1000"]  # slow steps, and a notice at none of them
    env = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    role = Role("main", "", entrypoint=sys.executable, args=words, env=env, checkpoints=True)
    role.progress_server = True
    with get_runner("tests") as runner:
        job = runner.job(runner.run(AppDef("train", [role]), "local"))

        def half_way() -> Progress | None:
            status = job.status()
            assert not status.is_terminal(), status
            found = status.progress
            if found is None or not found.fraction:
                return None
            return found

        seen = eventually(half_way, timeout=400)
        assert 0 < seen.fraction < 1
        assert seen.eta_seconds is not None
        assert "loss " in seen.text
        assert seen.total == 60
        status = job.wait(timeout=400)
        curve = job.steps()["0"]["loss"]
        values = job.results().results["0"]
    assert status.state is AppState.SUCCEEDED, status
    assert status.progress.fraction == 1
    assert len(curve) > 1
    assert max(curve) <= 60
    assert values["train_loss"] > 0
