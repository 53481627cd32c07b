"""The state table: total over AppState, names of Prefect's state types, no import of Prefect."""

from __future__ import annotations

from typing import Final

from transload.pipelines import StateMap
from transload.specs import AppState

STATES: Final = StateMap(
    "Prefect",
    {
        AppState.UNSUBMITTED: "SCHEDULED",
        AppState.SUBMITTED: "PENDING",
        AppState.PENDING: "PENDING",
        AppState.RUNNING: "RUNNING",
        AppState.SUCCEEDED: "COMPLETED",
        AppState.FAILED: "FAILED",
        AppState.CANCELLED: "CANCELLED",
        AppState.UNKNOWN: "CRASHED",
    },
    host_values=[
        "SCHEDULED",
        "PENDING",
        "RUNNING",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "CRASHED",
        "PAUSED",
        "CANCELLING",
    ],
    notes={
        AppState.FAILED: "raised as `AppFailed`, so that Prefect's retries apply",
        AppState.CANCELLED: "returned as the state `AppCancelled`",
        AppState.UNKNOWN: "once patience is exhausted, returned as the state `AppCrashed`",
    },
)
"""AppState → name of a ``prefect.client.schemas.objects.StateType``."""

APP_CANCELLED: Final = "AppCancelled"
APP_CRASHED: Final = "AppCrashed"
APP_DETACHED: Final = "AppDetached"
"""Names of the states that a task returns: cancelled, state unknown, let go with ``on_kill="detach"``."""
