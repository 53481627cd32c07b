"""A Python function runs as a job of Slurm, called as with submitit."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from pathlib import Path

import pytest

import transload
from transload.components.programs import call_main
from transload.components.programs.call_main import RESULT
from transload.runner import Runner
from transload.runtime.tracking import TrackingError

pytest.importorskip("cloudpickle")


def where(n: int) -> tuple[int, bool, str]:
    """Say where this runs."""
    return n * n, "SLURM_JOB_ID" in os.environ, os.getcwd()


def test_functions_as_jobs(runner: Runner) -> None:
    """Functions work in the current directory, and `map` keeps the order."""
    found = list(transload.map(where, [3, 4], parallelism=2, scheduler="slurm", runner=runner))
    assert found == [(9, True, os.getcwd()), (16, True, os.getcwd())]


@pytest.mark.engine("sshd")
@pytest.mark.parametrize("hostile", [False, True])
def test_functions_behind_a_login_node(far: Runner, tmp_path: Path, hostile: bool) -> None:
    """The key goes through the pipe. A signed result comes back, and a forged one does not."""
    base = str(tmp_path / "base")
    python = {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    app = transload.submit(where, 5, scheduler="slurm", runner=far, tracker_base=base, env=python)
    app.wait(timeout=60)
    assert not hostile or hidden(base, b"\n" + pickle.dumps(None))
    with pytest.raises(TrackingError, match="not signed") if hostile else contextlib.nullcontext():
        assert app.result(timeout=60)[:2] == (25, True)
    assert call_main.KEY not in os.environ


def hidden(base: str, data: bytes) -> int:
    """Put data in the place of the one result below a base."""
    (file,) = Path(base).rglob(RESULT)
    return file.write_bytes(data)
