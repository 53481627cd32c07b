"""The state table, total over AppState, with names of Tinyflow's states.

It does not import Tinyflow.
"""

from __future__ import annotations

from typing import Final

from transload.pipelines import StateMap
from transload.specs import AppState

STATES: Final = StateMap(
    "Tinyflow",
    {
        AppState.UNSUBMITTED: "WAITING",
        AppState.SUBMITTED: "ACTIVE",
        AppState.PENDING: "ACTIVE",
        AppState.RUNNING: "ACTIVE",
        AppState.SUCCEEDED: "DONE",
        AppState.FAILED: "BROKEN",
        AppState.CANCELLED: "STOPPED",
        AppState.UNKNOWN: "BROKEN",
    },
    host_values=["WAITING", "ACTIVE", "DONE", "BROKEN", "STOPPED"],
    notes={AppState.UNKNOWN: "once patience is exhausted"},
)
"""AppState → name of a ``tinyflow.StepState``."""
