"""The table from AppState to the name of a state of KFP, and exit codes.

This imports no KFP.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Final

from transload.pipelines import Ending, StateMap
from transload.specs import AppState

_RUNTIME_STATES: Final = (
    "RUNTIME_STATE_UNSPECIFIED",
    "PENDING",
    "RUNNING",
    "SUCCEEDED",
    "SKIPPED",
    "FAILED",
    "CANCELING",
    "CANCELED",
    "PAUSED",
)

STATES: Final = StateMap(
    "Kubeflow Pipelines",
    {
        AppState.UNSUBMITTED: "PENDING",
        AppState.SUBMITTED: "PENDING",
        AppState.PENDING: "PENDING",
        AppState.RUNNING: "RUNNING",
        AppState.SUCCEEDED: "SUCCEEDED",
        AppState.FAILED: "FAILED",
        AppState.CANCELLED: "CANCELED",
        AppState.UNKNOWN: "RUNTIME_STATE_UNSPECIFIED",
    },
    host_values=_RUNTIME_STATES,
    notes={
        AppState.CANCELLED: "a task's own program can end only SUCCEEDED or FAILED: the launcher exits with 79",
        AppState.UNKNOWN: "once patience is exhausted. The launcher exits with 76, and the job goes on",
    },
)
"""AppState → name of a ``RuntimeState`` of the v2beta1 API."""

EXIT_NO_RESULT: Final = 70
"""Exit code of a task whose job has ended well without a declared result."""

EXIT_CANCELLED: Final = 79
"""Exit code of a launcher whose job was cancelled."""

EXIT_UNKNOWN: Final = 76
"""Exit code of a launcher that gave up asking. The job goes on, and a retry reattaches to it."""

ENDINGS: Final[Mapping[Ending, int]] = {
    Ending.FAILED: 1,
    Ending.CANCELLED: EXIT_CANCELLED,
    Ending.TIMEOUT: 1,
    Ending.UNKNOWN: EXIT_UNKNOWN,
    Ending.DETACHED: 128 + int(signal.SIGTERM),
    Ending.MISCONFIGURED: 2,
}
"""Ending → exit code of the launcher."""
