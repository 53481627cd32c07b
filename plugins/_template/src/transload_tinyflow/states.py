"""The state table, total over AppState, with names of Tinyflow's states.

It does not import Tinyflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transload.pipelines import Ending, StateMap
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

ENDINGS: Final[Mapping[Ending, str]] = {
    Ending.FAILED: "Broken",
    Ending.CANCELLED: "Stopped",
    Ending.TIMEOUT: "Broken",
    Ending.UNKNOWN: "Broken",
    Ending.DETACHED: "Broken",
    Ending.MISCONFIGURED: "Broken",
}
"""Name of the exception by which Tinyflow learns of each ending."""
