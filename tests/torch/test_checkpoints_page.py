"""The programs of the page on checkpoints are interrupted, go on, and come to the same end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from transload.keeper.signs import read_report

pytest.importorskip("torch")
pytest.importorskip("sklearn")

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "checkpoints.md"
WITH_NOTICES = """
import os, runpy, signal, sys
from transload import runtime
plain = runtime.progress

def progress(step, **more):
    plain(step=step, **more)
    if str(step) in sys.argv[2:]:
        os.kill(os.getpid(), signal.SIGTERM)

runtime.progress = progress
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs a program that gets its notice at some steps."""


def program(name: str, folder: Path) -> Path:
    """Write a program of the page to a file."""
    pattern = rf"^```python\n# {re.escape(name)}\n(.*?)^```"
    (code,) = re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    file = folder / name
    file.write_text(code, encoding="utf-8")
    return file


def run(file: Path, folder: Path, *steps: int) -> int:
    """Run a program as an attempt of a job that is kept in a folder, and return its exit code."""
    names = {
        "TRANSLOAD_CHECKPOINT_DIR": folder / "checkpoints",
        "TRANSLOAD_PROGRESS_FILE": folder / "progress",
        "TRANSLOAD_TRACKER_BASE": folder / "results",
    }
    (folder / "results").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **{name: str(path) for name, path in names.items()}}
    environment["OMP_NUM_THREADS"] = (
        "1"  # threads that wait for each other are slow on a busy machine
    )
    command = [sys.executable, "-c", WITH_NOTICES, str(file), *map(str, steps)]
    return subprocess.run(command, env=environment, timeout=200).returncode


def results(folder: Path) -> dict[str, float]:
    """Return what was reported."""
    found: dict[str, float] = json.loads((folder / "results" / "0.json").read_text())["results"]
    return found


PROGRAMS = [
    "train_sklearn.py",
    pytest.param("train_torch.py", marks=pytest.mark.slow),
    pytest.param(
        "train_lightning.py",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(find_spec("lightning") is None, reason="not run: no lightning"),
        ],
    ),
]


@pytest.mark.timeout(600)  # a slow machine imports PyTorch four times
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_page_goes_on(tmp_path: Path, name: str) -> None:
    """The program ends with 75 after each notice, and goes on at the step that it had reached.

    Its result is that of a run without any notice, to the last bit.
    """
    file = program(name, tmp_path)
    whole = tmp_path / "whole"
    broken = tmp_path / "broken"
    assert run(file, whole) == 0
    for at in (13, 44):
        assert run(file, broken, at) == 75
        progress = read_report((broken / "progress").read_bytes(), 0.0)
        assert (progress["step"], progress["total"]) == (at, 60)
    assert run(file, broken) == 0
    assert len(list((broken / "checkpoints").iterdir())) == 2
    assert results(broken) == results(whole)
