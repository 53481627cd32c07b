"""``transload runtime`` prints one file that a program without transload takes along."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload import runtime
from transload.runtime.tracking import FsspecResultTracker, open_store, read_curves

PROGRAM = """
import os, sys
import transload_runtime as runtime
assert "transload" not in sys.modules
assert runtime.latest_checkpoint() is None
runtime.save_checkpoint(lambda folder: (folder / "state").write_text("7"))
for step in range(3):
    runtime.report(step=step, loss=3 - step)
runtime.report(key="a/b", wrong=None, note="é" * 200)
runtime.progress(step=3, total=3)
assert not runtime.interrupted()
os.kill(os.getpid(), 15)
assert runtime.interrupted()
runtime.exit_interrupted()
"""


@pytest.fixture
def taken(tmp_path: Path, invoke: Callable[..., Any]) -> Path:
    """A folder with the file that the command prints, and a program."""
    printed = invoke("runtime").out
    assert printed == Path(runtime.__file__).read_text(encoding="utf-8")
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "transload_runtime.py").write_text(printed, encoding="utf-8")
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    return folder


def _run(python: str, program: Path, **variables: object) -> subprocess.CompletedProcess[str]:
    values = {f"TRANSLOAD_{name}": str(value) for name, value in variables.items()}
    return subprocess.run(
        [python, "-S", str(program)],
        env={"PATH": os.environ["PATH"], **values},
        capture_output=True,
        text=True,
        timeout=60,
    )


def _python(minor: int) -> str:
    """Return a Python of that version, or skip where this machine has none."""
    kept = Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")
    for name in (f"python3.{minor}", *map(str, kept)):
        with contextlib.suppress(OSError):
            if subprocess.run([name, "-c", ""], capture_output=True).returncode == 0:
                return name
    pytest.skip(f"not run: no Python 3.{minor} is here")


@pytest.mark.parametrize("minor", range(8, 14))
def test_a_program_without_transload(tmp_path: Path, taken: Path, minor: int) -> None:
    """It reports, keeps a checkpoint and takes its notice, as with transload."""
    base = tmp_path / "base"
    done = _run(
        _python(minor),
        taken / "train.py",
        TRACKER_BASE=base,
        JOB_ID="local://s/a",
        ROLE="main",
        REPLICA_ID=0,
        CHECKPOINT_DIR=tmp_path / "checkpoints",
        PROGRESS_FILE=tmp_path / "progress",
    )
    assert done.returncode == 75, done.stderr
    assert "result 'wrong'=None" in done.stderr
    assert FsspecResultTracker(base).to_dict() == {"0": {"loss": 1}, "a/b": {"note": "é" * 200}}
    assert read_curves(open_store(base))["0"]["loss"] == {0: 3, 1: 2, 2: 1}
    assert json.loads((tmp_path / "progress").read_text()) == {"step": 3, "total": 3}
    assert (tmp_path / "checkpoints" / "checkpoint-000001" / "state").read_text() == "7"


def test_by_hand_nothing_happens(tmp_path: Path, taken: Path) -> None:
    """Outside of a job the same program runs, and nothing is written."""
    before = sorted(tmp_path.rglob("*"))
    done = _run(sys.executable, taken / "train.py")
    assert done.returncode == 75, done.stderr
    after = [path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts]
    assert sorted(after) == before


def test_a_url_needs_fsspec(tmp_path: Path, taken: Path) -> None:
    """Without it that is a warning, and ends nothing."""
    (taken / "one.py").write_text("from transload_runtime import report\nreport(loss=1)\n")
    done = _run(
        sys.executable, taken / "one.py", TRACKER_BASE="s3://bucket/x", JOB_ID="local://s/a"
    )
    assert done.returncode == 0
    assert "No module named 'fsspec'" in done.stderr
