"""The state table, total over AppState, with names of Prefect's state types.

It does not import Prefect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transload.errors import TransloadError
from transload.pipelines import Detached, Ending, StateMap
from transload.specs import AppState

HOST: Final = "prefect"
"""Session name of all handles."""

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
"""Name of the state of a task whose job somebody cancelled."""

ENDINGS: Final[Mapping[Ending, tuple[str, str] | None]] = {
    Ending.FAILED: None,
    Ending.CANCELLED: ("CANCELLED", APP_CANCELLED),
    Ending.TIMEOUT: None,
    Ending.UNKNOWN: ("CRASHED", "AppCrashed"),
    Ending.DETACHED: ("CANCELLED", "AppDetached"),
    Ending.MISCONFIGURED: None,
}
"""Ending → type and name of the state that a task returns.

None raises the error, and Prefect may retry it.
"""

INTERRUPTED: Final = ("CRASHED", "AppDetached")
"""Type and name of the state of a task whose process ended without a request. Its job goes on."""


def ending_of(error: TransloadError) -> tuple[str, str] | None:
    """Return type and name of the state for an error, or None if it is raised."""
    if isinstance(error, Detached) and not error.asked:
        return INTERRUPTED
    return ENDINGS[Ending.of(error)]
