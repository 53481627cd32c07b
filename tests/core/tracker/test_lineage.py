"""``Lineage`` as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transload.tracker import FsspecTracker, Lineage, LineageEdge, TrackerArtifact

pytestmark = pytest.mark.unit


def test_json_form() -> None:
    """The form that the command line prints is plain data, with a schema number."""
    lineage = Lineage(
        "run",
        ["parent"],
        ["child"],
        [LineageEdge("run", "parent", "data"), LineageEdge("child", "run")],
        {
            "run": {"m": TrackerArtifact("m", "/m", {"n": 1})},
            "child": {"x": TrackerArtifact("x", "/x", None)},
        },
    )
    data = json.loads(json.dumps(lineage.to_dict()))
    assert data["schema"] == 1
    assert data["edges"][1] == {"run_id": "child", "source_run_id": "run", "artifact_name": None}
    assert data["artifacts"]["run"]["m"] == {"name": "m", "path": "/m", "metadata": {"n": 1}}


def test_deep_lineage(tmp_path: Path) -> None:
    """A chain of hundreds of runs is followed to both ends."""
    tracker = FsspecTracker(None, tmp_path)
    for number in range(300):
        tracker.add_source(f"run-{number + 1}", f"run-{number}")
    lineage = tracker.lineage("run-150")
    assert lineage.parents == [f"run-{number}" for number in range(149, -1, -1)]
    assert lineage.descendants == [f"run-{number}" for number in range(151, 301)]
    assert len(lineage.edges) == 300
