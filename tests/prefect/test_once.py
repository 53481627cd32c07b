"""There is one job, whatever happens to the orchestrator's process, and whenever."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HARNESS = runpy.run_path(str(ROOT / "benchmarks" / "once" / "harness.py"), run_name="once_harness")


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_once_on_this_machine(kills: int, transload_home: Path) -> None:
    """A process killed or frozen at random and tried again has one job with all results."""
    cases, wrong = HARNESS["cell"]("prefect", "local", range(kills))
    assert len(cases) == kills
    assert wrong == []
