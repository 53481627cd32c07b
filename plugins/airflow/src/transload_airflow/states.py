"""The state table from AppState to the name of an Airflow task state. It imports no Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transload.pipelines import Ending, StateMap
from transload.specs import AppState

TASK_STATES: Final = (
    "removed",
    "scheduled",
    "queued",
    "running",
    "success",
    "restarting",
    "failed",
    "up_for_retry",
    "up_for_reschedule",
    "upstream_failed",
    "skipped",
    "deferred",
    "awaiting_input",
)
"""The values of ``TaskInstanceState`` in Airflow 3.3."""

STATES: Final = StateMap(
    "Airflow",
    {
        AppState.UNSUBMITTED: "scheduled",
        AppState.SUBMITTED: "queued",
        AppState.PENDING: "running",
        AppState.RUNNING: "running",
        AppState.SUCCEEDED: "success",
        AppState.FAILED: "failed",
        AppState.CANCELLED: "failed",
        AppState.UNKNOWN: "failed",
    },
    host_values=TASK_STATES,
    notes={
        AppState.SUBMITTED: "shown as running, or deferred: the task itself has started",
        AppState.PENDING: "or deferred",
        AppState.RUNNING: "or deferred",
        AppState.FAILED: "up_for_retry while retries are left",
        AppState.CANCELLED: 'without a retry, or skipped with `cancelled="skip"`',
        AppState.UNKNOWN: "once patience is exhausted, or up_for_retry while retries are left",
    },
)
"""AppState → value of ``airflow.sdk.TaskInstanceState``."""

ENDINGS: Final[Mapping[Ending, str]] = {
    Ending.FAILED: "AirflowException",
    Ending.CANCELLED: "AirflowFailException",
    Ending.TIMEOUT: "AirflowTaskTimeout",
    Ending.UNKNOWN: "AirflowException",
    Ending.DETACHED: "AirflowException",
    Ending.MISCONFIGURED: "AirflowFailException",
}
"""Name of the exception that a task raises for each ending.

Airflow never retries an ``AirflowFailException``.
"""
