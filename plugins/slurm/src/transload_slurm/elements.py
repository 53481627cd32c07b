"""An array: what the wrappers of its elements say, together, and what Slurm says of those that left
no word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from transload.specs import AppState, AppStatus, is_terminal
from transload_slurm.jobs import Job
from transload_slurm.states import WHY, clean, to_state

_ENDED: Final = ("SUCCEEDED", "FAILED", "CANCELLED")

ENDED_EARLY: Final = (
    "COMPLETED, but its batch script ended before the program started: does the prologue call exit?"
)
"""Why a job has failed of which Slurm says COMPLETED, if no replica was started."""

NO_REPORT: Final = "COMPLETED, but there is no record that the program ended well: see batch.log"
"""Likewise, if replicas were started."""


def gather(
    role: Mapping[str, Any], states: Sequence[Mapping[str, Any] | None]
) -> dict[str, Any] | None:
    """Return one state for all elements, from what the wrapper of each has written; None if none
    has begun.

    Args:
        role: the role, as in the app's record.
        states: of each element, None where it has not begun.
    """
    found = [state for state in states if state is not None]
    if not found:
        return None
    replicas = [
        state["roles"][0]["replicas"][0] if state else {"id": k, "state": "PENDING"}
        for k, state in enumerate(states)
    ]
    words = [state["state"] if state else "" for state in states]
    word = "RUNNING" if any(replica["state"] == "RUNNING" for replica in replicas) else "PENDING"
    if all(each in _ENDED for each in words):
        word = _together(role, words)
    bad = next(
        (state for word in ("FAILED", "CANCELLED") for state in found if state["state"] == word),
        None,
    )
    return {
        "schema": 1,
        "state": word,
        "msg": bad["msg"] if bad and word != "SUCCEEDED" else "",
        **(
            {"structured_error_msg": bad["structured_error_msg"]}
            if bad and "structured_error_msg" in bad
            else {}
        ),
        "num_restarts": sum(item["num_restarts"] for item in found),
        "signalled": any(item["signalled"] for item in found),
        "roles": [{"role": role["name"], "replicas": replicas}],
        "elements": words,
    }


def _together(role: Mapping[str, Any], words: Sequence[str]) -> str:
    wanted = role["num_replicas"] if role["min_replicas"] is None else role["min_replicas"]
    if words.count("SUCCEEDED") >= wanted:
        return "SUCCEEDED"
    return "FAILED" if "FAILED" in words else "CANCELLED"


def settle(
    status: AppStatus, role: Mapping[str, Any], state: Mapping[str, Any] | None, job: Job
) -> bool:
    """Judge an array of which nothing runs or waits any more; False if there is an element that
    nobody knows.

    Of an element the wrapper's end counts, else Slurm's row; but only the wrapper can say that the
    program succeeded. An element without either never ran, since Slurm drops those that are
    cancelled while they wait, or was lost if its wrapper had begun.

    Args:
        status: the app's; state, message and replicas are set.
        role: as in the record.
        state: what `gather` returned.
        job: what Slurm says of the array.
    """
    words = list(state["elements"]) if state else [""] * role["num_replicas"]
    causes: dict[str, list[str]] = {"FAILED": [status.msg] if status.msg else [], "CANCELLED": []}
    for k, word in enumerate(words):
        if word not in _ENDED:
            slurms = job.parts.get(str(k))
            if slurms is None and not job.parts:
                return False
            words[k], cause = _unwritten(word, slurms)
            causes.setdefault(words[k], []).append(f"Slurm job {job.id}: element {k} {cause}")
        replica = status.roles[0].replicas[k]
        if not is_terminal(replica.state):
            replica.state = AppState[words[k]]
    word = _together(role, words)
    status.state = AppState[word]
    status.msg = next(iter(causes.get(word, ())), "") if word != "SUCCEEDED" else ""
    return True


def is_unreported(state: Mapping[str, Any] | None, job: Job) -> bool:
    """Tell whether Slurm says COMPLETED of an element whose wrapper has written no end.

    Args:
        state: what `gather` returned.
        job: what Slurm says of the array.
    """
    completed = [
        int(k) for k, word in job.parts.items() if k.isdigit() and clean(word) == "COMPLETED"
    ]
    words = state["elements"] if state else []
    return any(k >= len(words) or words[k] not in _ENDED for k in completed)


def _unwritten(begun: str, word: str | None) -> tuple[str, str]:
    """Return how an element ended whose wrapper wrote no end, and in words; ``word`` is Slurm's."""
    if word is None:
        return ("FAILED", "was lost") if begun else ("CANCELLED", "was cancelled")
    state = to_state(word)
    if state is AppState.CANCELLED:
        return "CANCELLED", "was cancelled"
    if state is AppState.SUCCEEDED:
        return "FAILED", ENDED_EARLY if not begun else NO_REPORT
    return "FAILED", f"{clean(word)}: {WHY.get(clean(word), 'see batch.log')}"
