"""Tracking: metadata, artifacts and lineage of runs, kept by one or more tracker backends.

An application uses ``AppRun.run_from_env()``; whoever reads builds a tracker by name (``build_trackers``) or directly,
for example ``FsspecTracker(None, "s3://bucket/runs")``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.tracker.api import *
    from transload.tracker.backend.fsspec import *

# whoever only reads the environment of a job needs none of this
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "api": "AppRun AppRunTrackableSource ENV_TRANSLOAD_JOB_ID ENV_TRANSLOAD_PARENT_RUN_ID ENV_TRANSLOAD_TRACKERS "
        "ENV_TRANSLOAD_TRACKER_BASE Lineage LineageEdge TrackerArtifact TrackerBase TrackerFactory TrackerSource "
        "TrackingError UNDEFINED_JOB_ID app_run_from_env build_trackers check_run_id check_text check_trackers "
        "check_values injected_environment trace_lineage tracker_config_env_var_name trackers_from_environ "
        "trackers_in_environ",
        "backend.fsspec": "FsspecTracker",
    },
)
