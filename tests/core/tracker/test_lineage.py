"""``Lineage`` as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transload.runtime.tracking import TrackingError
from transload.tracker import FsspecTracker, Lineage, LineageEdge, TrackerArtifact


def test_json_form() -> None:
    """The JSON form is plain, versioned, and read back as it was."""
    lineage = Lineage(
        "run",
        ["parent"],
        ["child"],
        [LineageEdge("run", "parent", "data"), LineageEdge("child", "run")],
        {"run": {"m": TrackerArtifact("m", "/m", {"n": 1})}, "child": {"x": TrackerArtifact("x", "/x", None)}},
    )
    assert json.loads(lineage.to_json())["schema"] == 1
    assert Lineage.from_json(lineage.to_json()) == lineage


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "run_id": "x", "parents": 3}']
)
def test_json_form_refuses(text: str) -> None:
    """What is not a lineage, or of a newer schema, is refused."""
    with pytest.raises(TrackingError, match="lineage"):
        Lineage.from_json(text)


def test_deep_lineage(tmp_path: Path) -> None:
    """A chain of hundreds of runs is followed to both ends."""
    tracker = FsspecTracker(None, tmp_path)
    for number in range(300):
        tracker.add_source(f"run-{number + 1}", f"run-{number}")
    lineage = tracker.lineage("run-150")
    assert lineage.parents == [f"run-{number}" for number in range(149, -1, -1)]
    assert lineage.descendants == [f"run-{number}" for number in range(151, 301)]
    assert len(lineage.edges) == 300
