"""A Python function runs as a job of Slurm, called as with submitit."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import SpecError
from transload.runner import Runner

pytest.importorskip("cloudpickle")


def where(n: int) -> tuple[int, bool, str]:
    """Say where this runs."""
    return n * n, "SLURM_JOB_ID" in os.environ, os.getcwd()


def test_functions_as_jobs(runner: Runner) -> None:
    """Functions work in the current directory, and `map` keeps the order."""
    found = list(transload.map(where, [3, 4], parallelism=2, scheduler="slurm", runner=runner))
    assert found == [(9, True, os.getcwd()), (16, True, os.getcwd())]


@pytest.mark.engine("sshd")
def test_functions_behind_a_login_node(far: Runner, tmp_path: Path) -> None:
    """The function's package travels. What comes back is on no disk of ours, so it must be JSON."""
    options: dict[str, Any] = {"scheduler": "slurm", "runner": far}
    options["tracker_base"] = str(tmp_path / "base")
    options["env"] = {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    job = transload.submit(where, 5, **options)
    listed = transload.submit(list, (1, 2), **options)
    with pytest.raises(SpecError, match="on no disk of this machine.*trust=True"):
        job.result(timeout=60)
    assert job.result(trust=True)[:2] == (25, True)
    assert listed.result(timeout=60) == [1, 2]
