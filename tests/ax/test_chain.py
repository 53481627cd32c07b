"""A chain of a job and a search sets replicas by a parameter, and records the lineage."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from transload.pipelines import host_runner
from transload.tracker import FsspecTracker

EXAMPLE = Path(__file__).parents[2] / "examples" / "ax" / "replicas.py"


def test_a_searched_parameter_sets_the_replicas(
    transload_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The example finds the best number of replicas. Each trial has its first job as parent."""
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")  # here Ax is imported already
    assert "best: 3 replicas, cost 8500" in capsys.readouterr().out
    tracker = FsspecTracker(None, str(tmp_path / "runs"))
    first = next(run for run in tracker.run_ids() if "/survey-" in run)
    trials = list(tracker.run_ids(parent_run_id=first))
    assert len(trials) == 4
    runner = host_runner("ax")
    for trial in trials:
        described = runner.describe(trial)
        assert described is not None
        assert described.roles[0].num_replicas == tracker.metadata(trial)["replicas"]
    assert {tracker.metadata(trial)["replicas"] for trial in trials} >= {3}
    picture = (tmp_path / "lineage.svg").read_text()
    assert picture.count("local://") >= 5 or all(
        trial.rpartition("/")[2] in picture for trial in trials
    )
