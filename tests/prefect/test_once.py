"""Whatever becomes of the host's process, whenever: one job."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HARNESS = runpy.run_path(str(ROOT / "benchmarks" / "once" / "harness.py"), run_name="once_harness")


@pytest.mark.flaky(reruns=0)  # a second try would hide what this looks for
@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_once_on_this_machine(kills: int, transload_home: Path) -> None:
    """Killed or frozen at random moments and tried again: one birth, no process left, results and
    all lines.
    """
    cases, wrong = HARNESS["cell"]("prefect", "local", range(kills))
    assert len(cases) == kills
    assert wrong == []
