"""Artifacts and sources of a run, and its lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transload.tracker.api import TrackerBase

_SCHEMA = 1


@dataclass
class TrackerSource:
    """A source of a run in a tracker.

    Args:
        source_run_id: the run from which the other one came, or the id of anything else, such as an
            experiment.
        artifact_name: the artifact that was used, or the kind of relation. Sources can be filtered
            by it.
    """

    source_run_id: str
    artifact_name: str | None


@dataclass
class TrackerArtifact:
    """An artifact of a run in a tracker.

    Args:
        name: name of the artifact, unique within the run.
        path: its path or URL. The artifact itself is not copied.
        metadata: further facts about it, or None.
    """

    name: str
    path: str
    metadata: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """A link that says that ``run_id`` came from ``source_run_id``.

    ``artifact_name`` is the artifact of the source that was used, or None.
    """

    run_id: str
    source_run_id: str
    artifact_name: str | None = None


@dataclass
class Lineage:
    """All runs from which a run came or that came from it, at any distance.

    Args:
        run_id: the run itself.
        parents: ids of all runs from which it came, nearest first, without the run itself.
        descendants: ids of all runs that came from it, nearest first, without the run itself.
        edges: the links among all these runs.
        artifacts: run id → artifact name → artifact, for each of these runs with artifacts.
    """

    run_id: str
    parents: list[str] = field(default_factory=list)
    descendants: list[str] = field(default_factory=list)
    edges: list[LineageEdge] = field(default_factory=list)
    artifacts: dict[str, dict[str, TrackerArtifact]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return plain data for JSON, with a ``schema`` number."""
        return {"schema": _SCHEMA, **asdict(self)}


def trace_lineage(tracker: TrackerBase, run_id: str) -> Lineage:
    """Build the lineage of a run with the methods of a tracker.

    It calls ``sources``, ``run_ids(parent_run_id=…)`` and ``artifacts`` once for each run.
    """
    known: dict[str, list[TrackerSource]] = {}

    def sources(run: str) -> list[TrackerSource]:
        if run not in known:
            known[run] = list(tracker.sources(run))
        return known[run]

    parents = _reach(run_id, lambda run: [source.source_run_id for source in sources(run)])
    descendants = _reach(run_id, lambda run: tracker.run_ids(parent_run_id=run))
    members = dict.fromkeys([run_id, *parents, *descendants])
    edges = [
        LineageEdge(run, source.source_run_id, source.artifact_name)
        for run in members
        for source in sources(run)
        if source.source_run_id in members
    ]
    artifacts = {run: dict(tracker.artifacts(run)) for run in members}
    return Lineage(
        run_id,
        parents,
        descendants,
        edges,
        {run: items for run, items in artifacts.items() if items},
    )


def _reach(start: str, step: Callable[[str], Iterable[str]]) -> list[str]:
    """Return all runs that repeated steps reach, breadth first, without the start."""
    seen = {start: None}
    layer = [start]
    while layer:
        reached = []
        for run in layer:
            for neighbour in step(run):
                if neighbour not in seen:
                    seen[neighbour] = None
                    reached.append(neighbour)
        layer = reached
    del seen[start]
    return list(seen)
