"""The state table of Slurm, total over its words (22.05 to 25.11). Other words are UNKNOWN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from transload.specs import AppState, is_terminal

STATES: Final[Mapping[str, AppState]] = {
    "BOOT_FAIL": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
    "COMPLETED": AppState.SUCCEEDED,
    "COMPLETING": AppState.RUNNING,
    "CONFIGURING": AppState.PENDING,
    "DEADLINE": AppState.FAILED,
    "EXPEDITING": AppState.PENDING,
    "FAILED": AppState.FAILED,
    "LAUNCH_FAILED": AppState.FAILED,
    "NODE_FAIL": AppState.FAILED,
    "OUT_OF_MEMORY": AppState.FAILED,
    "PENDING": AppState.PENDING,
    "POWER_UP_NODE": AppState.PENDING,
    "PREEMPTED": AppState.FAILED,
    "RECONFIG_FAIL": AppState.FAILED,
    "REQUEUED": AppState.PENDING,
    "REQUEUE_FED": AppState.PENDING,
    "REQUEUE_HOLD": AppState.PENDING,
    "RESIZING": AppState.RUNNING,
    "RESV_DEL_HOLD": AppState.PENDING,
    "REVOKED": AppState.UNKNOWN,
    "RUNNING": AppState.RUNNING,
    "SIGNALING": AppState.RUNNING,
    "SPECIAL_EXIT": AppState.PENDING,
    "STAGE_OUT": AppState.RUNNING,
    "STOPPED": AppState.RUNNING,
    "SUSPENDED": AppState.PENDING,
    "TIMEOUT": AppState.FAILED,
    "UPDATE_DB": AppState.RUNNING,
}
"""The state of a job for each word of Slurm.

COMPLETING hides how a job ended. A SUSPENDED one waits. A REVOKED one lives on in another cluster
of the federation.
"""

WHY: Final[Mapping[str, str]] = {
    "BOOT_FAIL": "a node did not boot",
    "DEADLINE": "it could not have ended before its deadline",
    "LAUNCH_FAILED": "it could not be launched",
    "NODE_FAIL": "a node was lost",
    "OUT_OF_MEMORY": "it took more memory than it had asked for",
    "PREEMPTED": "it was pre-empted",
    "RECONFIG_FAIL": "a node could not be reconfigured",
    "TIMEOUT": "its limit of time has run out",
}
"""What a word means, for a person."""


PUT_BACK: Final = frozenset({"BOOT_FAIL", "NODE_FAIL", "PREEMPTED"})
"""What a job may seem to have come to for a moment, before Slurm puts it back in the queue."""


def clean(word: str) -> str:
    """Return Slurm's word without additions, as in ``"CANCELLED by 1000"`` or ``"CANCELLED+"``."""
    return word.strip().split(" ")[0].rstrip("+").upper()


def to_state(word: str) -> AppState:
    """Return the state for a word of Slurm.

    Of ``"RUNNING,SIGNALING"`` the first known one counts.
    """
    for part in word.replace(",", " ").split() or [""]:
        found = STATES.get(clean(part))
        if found is not None:
            return found
    return AppState.UNKNOWN


def combined(words: Iterable[str]) -> str:
    """Return the word for a job of several components.

    While a part lives, it is the liveliest part's. Once all have ended, it is the worst one. A
    cause of failure is worse than CANCELLED, which is the end of the others, and that is worse than
    COMPLETED.
    """
    order = {
        AppState.RUNNING: 0,
        AppState.PENDING: 1,
        AppState.UNKNOWN: 2,
        AppState.FAILED: 3,
        AppState.CANCELLED: 4,
        AppState.SUCCEEDED: 5,
    }
    found = sorted(words, key=lambda word: (order[to_state(word)], clean(word) == "FAILED"))
    return found[0] if found else ""


def ended(word: str) -> bool:
    """Tell whether Slurm is done with a job in this state."""
    return is_terminal(to_state(word))
