"""A Python function as a job of Slurm: the calls of those who come from submitit."""

from __future__ import annotations

import os

import pytest

import transload
from transload.runner import Runner

pytest.importorskip("cloudpickle")


def where(n: int) -> tuple[int, bool, str]:
    """Say where this runs."""
    return n * n, "SLURM_JOB_ID" in os.environ, os.getcwd()


def test_functions_as_jobs(runner: Runner) -> None:
    """They work in the current directory; `map` keeps the order."""
    found = list(transload.map(where, [3, 4], parallelism=2, scheduler="slurm", runner=runner))
    assert found == [(9, True, os.getcwd()), (16, True, os.getcwd())]
