"""The state table, total over AppState, with names of Ax's states. It does not import Ax."""

from __future__ import annotations

from typing import Final

from transload.pipelines import StateMap
from transload.specs import AppState

_ALL = [
    "CANDIDATE",
    "STAGED",
    "FAILED",
    "COMPLETED",
    "RUNNING",
    "ABANDONED",
    "DISPATCHED",
    "EARLY_STOPPED",
    "STALE",
]

STATES: Final = StateMap(
    "Ax",
    {
        AppState.UNSUBMITTED: "CANDIDATE",
        AppState.SUBMITTED: "STAGED",
        AppState.PENDING: "STAGED",
        AppState.RUNNING: "RUNNING",
        AppState.SUCCEEDED: "COMPLETED",
        AppState.FAILED: "FAILED",
        AppState.CANCELLED: "ABANDONED",
        AppState.UNKNOWN: "FAILED",
    },
    host_values=_ALL,
    notes={
        **dict.fromkeys(
            (AppState.SUBMITTED, AppState.PENDING), "shown as RUNNING, from the trial's submit on"
        ),
        AppState.UNKNOWN: "once patience is exhausted, with no data, and the arm may be suggested again",
    },
)
"""AppState → name of an ``ax.core.trial_status.TrialStatus``."""
