"""The state table: total over AppState, names of Ax's states, no import of Ax."""

from __future__ import annotations

from typing import Final

from transload.pipelines import StateMap
from transload.specs import AppState

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
    host_values=[
        "CANDIDATE",
        "STAGED",
        "FAILED",
        "COMPLETED",
        "RUNNING",
        "ABANDONED",
        "DISPATCHED",
        "EARLY_STOPPED",
        "STALE",
    ],
    notes={AppState.UNKNOWN: "once patience is exhausted"},
)
"""AppState → name of an ``ax.core.trial_status.TrialStatus``."""
