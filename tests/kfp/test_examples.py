"""The examples run, and leave behind what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from transload.runner import Runner
from transload.tracker import FsspecTracker

EXAMPLES = Path(__file__).parents[2] / "examples" / "kfp"


@pytest.mark.timeout(300)
def test_chain(transload_home: Path, tmp_path: Path) -> None:
    """The first job decides the second one's replicas.

    The tracker knows their link, and draws it.
    """
    place = tmp_path / "place"
    command = [sys.executable, str(EXAMPLES.parent / "chain" / "kfp_pipeline.py"), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with Runner("kfp") as runner:
        handles = {row.name: row.app_handle for row in runner.list("local")}
        status = runner.status(handles["count"])
    assert status is not None
    assert len(status.roles[0].replicas) == 3
    assert done.stdout.splitlines()[-1] == handles["count"]
    tracker = FsspecTracker(None, str(place / "runs"))
    assert list(tracker.run_ids(parent_run_id=handles["plan"])) == [handles["count"]]
    assert tracker.metadata(handles["count"]) == {"replicas": 3}
    assert [each.name for each in tracker.artifacts(handles["plan"]).values()] == ["numbers"]
    assert "<svg" in (place / "lineage.svg").read_text()


def test_pipeline_compiles(tmp_path: Path) -> None:
    """The pipeline of the digits is compiled by the command that its page shows."""
    path = tmp_path / "pipeline.yaml"
    command = [sys.executable, str(EXAMPLES / "pipeline.py"), str(path)]
    subprocess.run(command, check=True, timeout=120, env=os.environ)
    assert "name: digits" in path.read_text()
