"""The contract of schedulers, watching jobs, and the local scheduler."""

from __future__ import annotations

from transload.schedulers.api import (
    AppDescription,
    CheckpointFolder,
    ExecCommand,
    Field,
    JobFiles,
    ListAppResponse,
    LogPage,
    LogQuery,
    SchedulerBase,
    SchedulerFactory,
    Stream,
    Submission,
    Visibility,
    Watch,
    cancel_each,
    check_replica,
    damaged_message,
    features,
    refuse_unsupported,
    request_json,
)
from transload.schedulers.chains import chain_and_number, number_in_chain
from transload.schedulers.changes import Changes, Feeder
from transload.schedulers.follower import read_logs, wait, wait_async, watch, watched
from transload.schedulers.open_readings import OpenReadings
from transload.schedulers.patience import (
    backoff,
    check_seconds,
    patience_left,
    unknown_for,
    unknown_since,
)
from transload.schedulers.subscription import Observation, Subscription, ended

__all__ = [
    "AppDescription",
    "Changes",
    "CheckpointFolder",
    "ExecCommand",
    "Feeder",
    "Field",
    "JobFiles",
    "ListAppResponse",
    "LogPage",
    "LogQuery",
    "Observation",
    "OpenReadings",
    "SchedulerBase",
    "SchedulerFactory",
    "Stream",
    "Submission",
    "Subscription",
    "Visibility",
    "Watch",
    "backoff",
    "cancel_each",
    "chain_and_number",
    "check_replica",
    "check_seconds",
    "damaged_message",
    "ended",
    "features",
    "number_in_chain",
    "patience_left",
    "read_logs",
    "refuse_unsupported",
    "request_json",
    "unknown_for",
    "unknown_since",
    "wait",
    "wait_async",
    "watch",
    "watched",
]
