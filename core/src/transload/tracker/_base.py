"""The contract of a tracker backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from transload.tracker._lineage import Lineage
from transload.tracker._records import TrackerArtifact, TrackerSource

__all__ = ["TrackerBase"]


class TrackerBase(ABC):
    """Keeps metadata, artifacts and lineage of runs; a subclass for each kind of store.

    A run is named by any text, mostly an app handle. Nothing needs to be created first: a run exists once something was
    stored about it. No write is lost, and of two values for one name the last one written wins.
    """

    @abstractmethod
    def add_artifact(self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None) -> None:
        """Record an artifact of a run; one of the same name is replaced.

        Args:
            run_id: the run.
            name: name of the artifact.
            path: where it lies, a path or a URL.
            metadata: more about it.
        """

    @abstractmethod
    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Return the artifacts of a run by name; empty for a run that is not known."""

    @abstractmethod
    def add_metadata(self, run_id: str, /, **kwargs: object) -> None:
        """Record metadata of a run; names not given now keep their values."""

    @abstractmethod
    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Return the metadata of a run by name; empty for a run that is not known."""

    @abstractmethod
    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run came from another one.

        Args:
            run_id: the run.
            source_id: the run that it came from, or the id of anything else.
            artifact_name: which artifact of the source was used, or the kind of relation.
        """

    @abstractmethod
    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Return the direct sources of a run; with ``artifact_name`` those recorded under that name only."""

    @abstractmethod
    def lineage(self, run_id: str) -> Lineage:
        """Return everything that a run came from and everything that came from it, with the artifacts of all.

        ``transload.tracker.trace_lineage(self, run_id)`` makes it from ``sources``, ``run_ids`` and ``artifacts``.
        """

    @abstractmethod
    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Return the ids of all runs, or of those that the filters leave.

        Args:
            kwargs: filters. Every backend knows ``parent_run_id``: runs that have this run as a direct source.
        """
