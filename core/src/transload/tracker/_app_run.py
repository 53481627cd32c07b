"""What an application uses: the run that it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from transload.tracker._base import TrackerBase
from transload.tracker._environ import ENV_TRANSLOAD_JOB_ID, ENV_TRANSLOAD_PARENT_RUN_ID
from transload.tracker._factories import trackers_from_environ

__all__ = ["UNDEFINED_JOB_ID", "AppRun", "AppRunTrackableSource", "app_run_from_env"]

UNDEFINED_JOB_ID = "<UNDEFINED>"
"""Id of the run of a process that was not launched as a job."""


@dataclass
class AppRunTrackableSource:
    """A source of a run, as an application sees it.

    Args:
        parent: the run that the other one came from.
        artifact_name: what of it was used, or None.
    """

    parent: AppRun
    artifact_name: str | None


@dataclass
class AppRun:
    """A run and the trackers that it is recorded in: what is added goes to each, what is asked is asked of the first.

    Args:
        id: the run id, an app handle.
        backends: its trackers.
    """

    id: str
    backends: Iterable[TrackerBase]

    @staticmethod
    @lru_cache(maxsize=1)
    def run_from_env() -> AppRun:
        """Return the run of this process, always the same object.

        Its id and trackers come from the environment that the runner made, and the run that launched it, if there is
        one, is recorded as its source. In a process that was not launched as a job the run is empty: its id is
        ``<UNDEFINED>``, and what is added to it goes nowhere.

        Raises:
            ConfigError: a tracker that the environment names cannot be made.
        """
        job_id = os.environ.get(ENV_TRANSLOAD_JOB_ID)
        if not job_id:
            return AppRun(UNDEFINED_JOB_ID, [])
        run = AppRun(job_id, trackers_from_environ())
        parent = os.environ.get(ENV_TRANSLOAD_PARENT_RUN_ID)
        if parent:
            run.add_source(parent)
        return run

    def job_id(self) -> str:
        """Return the id of the run."""
        return self.id

    def add_metadata(self, /, **kwargs: object) -> None:
        """Record metadata of the run; names not given now keep their values."""
        for backend in self.backends:
            backend.add_metadata(self.id, **kwargs)

    def add_artifact(self, name: str, path: str, metadata: Mapping[str, object] | None = None) -> None:
        """Record an artifact of the run.

        Args:
            name: name of the artifact; one of the same name is replaced.
            path: where it lies, a path or a URL.
            metadata: more about it.
        """
        for backend in self.backends:
            backend.add_artifact(self.id, name, path, metadata)

    def add_source(self, source_id: str, artifact_name: str | None = None) -> None:
        """Record that the run came from another one.

        Args:
            source_id: the other run, or the id of anything else, such as an experiment.
            artifact_name: what of it was used.
        """
        for backend in self.backends:
            backend.add_source(self.id, source_id, artifact_name)

    def sources(self) -> Iterable[AppRunTrackableSource]:
        """Return the direct sources of the run, as the first tracker knows them."""
        for backend in self.backends:
            return [
                AppRunTrackableSource(AppRun(source.source_run_id, self.backends), source.artifact_name)
                for source in backend.sources(self.id)
            ]
        return []

    def children(self) -> Iterable[AppRun]:
        """Return the runs that have this run as a direct source, as the first tracker knows them."""
        for backend in self.backends:
            return [AppRun(run_id, self.backends) for run_id in backend.run_ids(parent_run_id=self.id)]
        return []


def app_run_from_env() -> AppRun:
    """Return ``AppRun.run_from_env()``; here because TorchX's users import it under this name."""
    return AppRun.run_from_env()
