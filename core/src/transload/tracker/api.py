"""The contract of trackers, the run of an application, and the variables that name its trackers.

TorchX has these names under this module path, too.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from transload.errors import ConfigError, PluginError, TransloadError
from transload.plugins.builtins import BUILTINS
from transload.runtime.tracking import ENV_TRANSLOAD_TRACKER_BASE, TrackingError
from transload.tracker.checks import check_run_id, check_text, check_values
from transload.tracker.lineage import (
    Lineage,
    LineageEdge,
    TrackerArtifact,
    TrackerSource,
    trace_lineage,
)

__all__ = [
    "ENV_TRANSLOAD_CHECKPOINT_NAME",
    "ENV_TRANSLOAD_JOB_ID",
    "ENV_TRANSLOAD_PARENT_RUN_ID",
    "ENV_TRANSLOAD_TRACKERS",
    "ENV_TRANSLOAD_TRACKER_BASE",
    "UNDEFINED_JOB_ID",
    "AppRun",
    "AppRunTrackableSource",
    "Lineage",
    "LineageEdge",
    "TrackerArtifact",
    "TrackerBase",
    "TrackerFactory",
    "TrackerSource",
    "TrackingError",
    "build_trackers",
    "check_run_id",
    "check_text",
    "check_trackers",
    "check_values",
    "injected_environment",
    "trace_lineage",
    "tracker_config_env_var_name",
    "trackers_from_environ",
    "trackers_in_environ",
]


ENV_TRANSLOAD_TRACKERS = "TRANSLOAD_TRACKERS"
"""Names of the job's trackers, separated by commas."""

ENV_TRANSLOAD_PARENT_RUN_ID = "TRANSLOAD_PARENT_RUN_ID"
"""The run from which the job came."""

ENV_TRANSLOAD_JOB_ID = "TRANSLOAD_JOB_ID"
"""The handle of the job, which is the run id."""

ENV_TRANSLOAD_CHECKPOINT_NAME = "TRANSLOAD_CHECKPOINT_NAME"
"""Environment variable with the name under which the checkpoints of the job are kept.

Jobs that share it are one run, for a tracker that can show them so. It is not set for a job without
checkpoints.
"""

UNDEFINED_JOB_ID = "<UNDEFINED>"
"""Run id of a process that was not launched as a job."""


class TrackerBase(ABC):
    """Keeps metadata, artifacts and lineage of runs. There is a subclass for each kind of store.

    A run id is any text, usually the handle of a job. A run need not be created, since it exists
    once something was stored about it. If a name gets two values, the last one counts.
    """

    @abstractmethod
    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact of a run, in place of one with the same name.

        Args:
            run_id: the run.
            name: name of the artifact.
            path: its path or URL.
            metadata: further facts about it.
        """

    @abstractmethod
    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Return the artifacts of a run by name, which are none for an unknown run."""

    @abstractmethod
    def add_metadata(self, run_id: str, /, **kwargs: object) -> None:
        """Record metadata of a run. Names not given now keep their values."""

    @abstractmethod
    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Return the metadata of a run by name, which are none for an unknown run."""

    @abstractmethod
    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run came from another one.

        Args:
            run_id: the run.
            source_id: the run from which it came, or the id of anything else.
            artifact_name: the artifact of the source that was used, or the kind of relation.
        """

    @abstractmethod
    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Return the direct sources of a run, with ``artifact_name`` only those of that name."""

    @abstractmethod
    def lineage(self, run_id: str) -> Lineage:
        """Return all runs from which a run came or that came from it, with their artifacts.

        ``transload.tracker.trace_lineage(self, run_id)`` builds it from ``sources``, ``run_ids`` and
        ``artifacts``.
        """

    @abstractmethod
    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Return the ids of all runs, or of those that match the filters.

        Args:
            kwargs: filters. Every tracker supports ``parent_run_id``, which selects the runs that
                have this run as a direct source.
        """


TrackerFactory = Callable[[str | None], TrackerBase]
"""Creates a tracker from its configuration text or None."""


@dataclass
class AppRunTrackableSource:
    """A source of an application's run, with the artifact of it that was used, or None."""

    parent: AppRun
    artifact_name: str | None


@dataclass
class AppRun:
    """A run and its trackers. It writes to all trackers and reads from the first one.

    Its id is usually the handle of a job.
    """

    id: str
    backends: Iterable[TrackerBase]

    @staticmethod
    @lru_cache(maxsize=1)
    def run_from_env() -> AppRun:
        """Return the run of this process, always the same object.

        Its id and trackers come from the environment that the runner made. If another run launched
        it, that run is recorded as its source. A process that was not launched as a job has an
        empty run. Its id is ``<UNDEFINED>``, and whatever is added to it is discarded.

        Raises:
            ConfigError: if a tracker in the environment cannot be created.
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
        """Record metadata of the run. Names not given now keep their values."""
        for backend in self.backends:
            backend.add_metadata(self.id, **kwargs)

    def add_artifact(
        self, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact of the run, like `TrackerBase.add_artifact`."""
        for backend in self.backends:
            backend.add_artifact(self.id, name, path, metadata)

    def add_source(self, source_id: str, artifact_name: str | None = None) -> None:
        """Record that the run came from another one, like `TrackerBase.add_source`."""
        for backend in self.backends:
            backend.add_source(self.id, source_id, artifact_name)

    def sources(self) -> Iterable[AppRunTrackableSource]:
        """Return the direct sources of the run in the first tracker."""
        for backend in self.backends:
            return [
                AppRunTrackableSource(
                    AppRun(source.source_run_id, self.backends), source.artifact_name
                )
                for source in backend.sources(self.id)
            ]
        return []

    def children(self) -> Iterable[AppRun]:
        """Return the runs in the first tracker that have this run as a direct source."""
        for backend in self.backends:
            return [
                AppRun(run_id, self.backends) for run_id in backend.run_ids(parent_run_id=self.id)
            ]
        return []


def tracker_config_env_var_name(entrypoint_key: str) -> str:
    """Return the name of the variable for a tracker's configuration.

    Example:
        >>> tracker_config_env_var_name("mlflow")
        'TRANSLOAD_TRACKER_MLFLOW_CONFIG'
    """
    return f"TRANSLOAD_TRACKER_{re.sub('[^A-Z0-9_]', '_', entrypoint_key.upper())}_CONFIG"


def injected_environment(trackers: Mapping[str, str | None]) -> dict[str, str]:
    """Return the variables of a job from which ``AppRun.run_from_env()`` makes its trackers.

    Args:
        trackers: tracker name or ``module:factory`` → configuration text or None.

    Raises:
        ConfigError: if a name cannot be passed on, or two names share one variable.
    """
    variables: dict[str, str] = {}
    for name, config in trackers.items():
        if not name or "," in name or name != name.strip():
            raise ConfigError(
                f"tracker {name!r}: a name must have no comma, and no blank at its ends"
            )
        variable = tracker_config_env_var_name(name)
        clash = [
            other
            for other in trackers
            if other != name and tracker_config_env_var_name(other) == variable
        ]
        if clash:
            raise ConfigError(
                f"trackers {name!r} and {clash[0]!r} would share the variable {variable}; rename "
                "one"
            )
        if config is not None:
            variables[variable] = config
    if not trackers:
        return {}
    return {ENV_TRANSLOAD_TRACKERS: ",".join(trackers), **variables}


def trackers_in_environ(environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the trackers that the environment names, with their configurations."""
    if environ is None:
        environ = os.environ
    names = [name.strip() for name in environ.get(ENV_TRANSLOAD_TRACKERS, "").split(",")]
    return {name: environ.get(tracker_config_env_var_name(name)) for name in names if name}


def build_trackers(factory_and_config: Mapping[str, str | None]) -> list[TrackerBase]:
    """Build trackers, in the order given.

    Args:
        factory_and_config: name of a tracker (built in or of a plugin) or ``module:factory`` → its
            configuration.

    Raises:
        ConfigError: if a name is unknown, or a tracker cannot be created from its configuration.
    """
    return [_build(name, config) for name, config in factory_and_config.items()]


def trackers_from_environ() -> list[TrackerBase]:
    """Build the trackers in this process's environment, with the errors of `build_trackers`."""
    return build_trackers(trackers_in_environ())


def check_trackers(factory_and_config: Mapping[str, str | None]) -> None:
    """Check, before a submit, that a job will be able to build its trackers.

    Each tracker is built once and discarded. Building contacts no server and writes nothing.

    Raises:
        ConfigError: if a tracker cannot be built. The message has its name and the reason.
    """
    injected_environment(factory_and_config)
    build_trackers(factory_and_config)


def _build(name: str, config: str | None) -> TrackerBase:
    factory = _factory(name)
    if not callable(factory):
        raise ConfigError(
            f"tracker {name!r}: {type(factory).__name__} is not a factory (a callable of one "
            "argument)"
        )
    # the configuration may contain credentials, so it is not shown
    try:
        tracker = factory(config)
    except TransloadError as exc:
        raise ConfigError(f"tracker {name!r}: {exc}") from exc
    except Exception as exc:
        raise ConfigError(f"tracker {name!r} cannot be made: {type(exc).__name__}: {exc}") from exc
    if not isinstance(tracker, TrackerBase):
        raise ConfigError(
            f"tracker {name!r}: its factory returned {type(tracker).__name__}, not a TrackerBase"
        )
    return tracker


def _factory(name: str) -> Any:
    # built-in trackers come first, so that a job that uses one loads no plugin
    reference = BUILTINS["trackers"].get(name, name)
    if ":" in reference:
        from pkgutil import resolve_name

        try:
            return resolve_name(reference)
        except Exception as exc:
            raise ConfigError(
                f"tracker {name!r} cannot be imported: {type(exc).__name__}: {exc}"
            ) from exc
    from transload.plugins import get_plugins

    plugins = get_plugins()
    try:
        return plugins.get("trackers", name)
    except KeyError as exc:
        known = ", ".join(plugins.names("trackers"))
        hint = f"{plugins.hint('trackers', name)} (known: {known}, or module:factory)"
        raise ConfigError(f"tracker {name!r}: no such tracker: {hint}") from exc
    except PluginError as exc:
        raise ConfigError(f"tracker {name!r}: {exc}") from exc
