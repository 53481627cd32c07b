"""Tracking: metadata, artifacts and lineage of runs, kept by one or more tracker backends.

An application uses ``AppRun.run_from_env()``; whoever reads builds a tracker by name
(``build_trackers``) or directly, for example ``FsspecTracker(None, "s3://bucket/runs")``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins.lazy import lazy_names
from transload.tracker.api import (
    ENV_TRANSLOAD_JOB_ID,
    ENV_TRANSLOAD_PARENT_RUN_ID,
    ENV_TRANSLOAD_TRACKER_BASE,
    ENV_TRANSLOAD_TRACKERS,
    UNDEFINED_JOB_ID,
    AppRun,
    AppRunTrackableSource,
    Lineage,
    LineageEdge,
    TrackerArtifact,
    TrackerBase,
    TrackerFactory,
    TrackerSource,
    TrackingError,
    build_trackers,
    check_run_id,
    check_text,
    check_trackers,
    check_values,
    injected_environment,
    trace_lineage,
    tracker_config_env_var_name,
    trackers_from_environ,
    trackers_in_environ,
)
from transload.tracker.backend.fsspec import FsspecTracker

if TYPE_CHECKING:
    from transload.compat.torchx import app_run_from_env

__all__ = [
    "ENV_TRANSLOAD_JOB_ID",
    "ENV_TRANSLOAD_PARENT_RUN_ID",
    "ENV_TRANSLOAD_TRACKERS",
    "ENV_TRANSLOAD_TRACKER_BASE",
    "UNDEFINED_JOB_ID",
    "AppRun",
    "AppRunTrackableSource",
    "FsspecTracker",
    "Lineage",
    "LineageEdge",
    "TrackerArtifact",
    "TrackerBase",
    "TrackerFactory",
    "TrackerSource",
    "TrackingError",
    "app_run_from_env",
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

# a name that is found here by those who come from TorchX; imported when asked for
__getattr__, __dir__, _ = lazy_names(__name__, {".compat.torchx": "app_run_from_env"})
