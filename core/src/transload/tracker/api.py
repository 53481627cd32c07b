"""The names of ``transload.tracker`` under the module path that TorchX users import them from."""

from __future__ import annotations

from transload.runtime.tracking import TrackingError
from transload.tracker._app_run import UNDEFINED_JOB_ID, AppRun, AppRunTrackableSource, app_run_from_env
from transload.tracker._base import TrackerBase
from transload.tracker._environ import (
    ENV_TRANSLOAD_JOB_ID,
    ENV_TRANSLOAD_PARENT_RUN_ID,
    ENV_TRANSLOAD_TRACKER_BASE,
    ENV_TRANSLOAD_TRACKERS,
    injected_environment,
    tracker_config_env_var_name,
    trackers_in_environ,
)
from transload.tracker._factories import TrackerFactory, build_trackers, check_trackers, trackers_from_environ
from transload.tracker._lineage import Lineage, LineageEdge, trace_lineage
from transload.tracker._records import TrackerArtifact, TrackerSource, check_run_id, check_text, check_values

__all__ = [
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
