"""Describe the elements of an array.

Their supervisors wrote the state of some, and Slurm says how the rest are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from transload.retries import needed_replicas
from transload.runtime.liveness import furthest_behind
from transload.specs import AppState, AppStatus, is_terminal
from transload_slurm.jobs import Job
from transload_slurm.states import WHY, clean, to_state

_ENDED: Final = ("SUCCEEDED", "FAILED", "CANCELLED")

_MOST_SAID: Final = 3
"""So many elements may say in the message of the array what is with them."""

ENDED_EARLY: Final = (
    "COMPLETED, but its batch script ended before the program started: does the prologue call exit?"
)
"""Why a job has failed of which Slurm says COMPLETED, if no replica was started."""

NO_REPORT: Final = "COMPLETED, but there is no record that the program ended well: see batch.log"
"""Likewise, if replicas were started."""


def gather(
    role: Mapping[str, Any], states: Sequence[Mapping[str, Any] | None]
) -> dict[str, Any] | None:
    """Return one state for all elements, or None if none has begun.

    Args:
        role: the role, as in the job's record.
        states: what the supervisor of each element has written, or None if it has not begun.
    """
    begun = [state for state in states if state is not None]
    if not begun:
        return None
    replicas: list[dict[str, Any]] = []
    words: list[str] = []
    for k, state in enumerate(states):
        if state:
            replicas.append(_replica_of(state))
            words.append(state["state"])
        else:
            replicas.append({"id": k, "state": "PENDING"})
            words.append("")
    word = "PENDING"
    if all(each in _ENDED for each in words):
        word = _together(role, words)
    elif any(replica["state"] == "RUNNING" for replica in replicas):
        word = "RUNNING"
    found = {
        "schema": 1,
        "state": word,
        "msg": "",
        "num_restarts": sum(state["num_restarts"] for state in begun),
        "signalled": any(state["signalled"] for state in begun),
        "roles": [{"role": role["name"], "replicas": replicas}],
        "elements": words,
        "job": begun[0].get("job"),
        "nodes": ",".join(dict.fromkeys(str(state.get("nodes") or "") for state in begun)),
    }
    progress = furthest_behind(map(_progress_of, begun))
    if progress:
        found["progress"] = progress
    if word not in _ENDED:
        if any(state.get("stalled") is True for state in begun if state["state"] not in _ENDED):
            found["stalled"] = True
        said = [state["msg"] for state in begun if state["msg"] and state["state"] not in _ENDED]
        found["msg"] = "; ".join(said[:_MOST_SAID])
    bad = _first_of(begun, "FAILED") or _first_of(begun, "CANCELLED")
    if bad and word != "SUCCEEDED":
        found["msg"] = bad["msg"]
    if bad and "structured_error_msg" in bad:
        found["structured_error_msg"] = bad["structured_error_msg"]
    return found


def _replica_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the replica of an element, which waits if Slurm has ended an attempt of it."""
    replica: dict[str, Any] = state["roles"][0]["replicas"][0]
    if replica["state"] == "CANCELLED" and state["state"] not in _ENDED:
        return {**replica, "state": "PENDING"}
    return replica


def _progress_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the progress in a state, or {} if there is none, or it is damaged."""
    found = state.get("progress")
    if not isinstance(found, dict):
        return {}
    numbers = [found.get("at"), found.get("fraction", 0.0)]
    if not all(isinstance(number, (int, float)) for number in numbers):
        return {}
    return found


def _first_of(states: Sequence[Mapping[str, Any]], word: str) -> Mapping[str, Any] | None:
    """Return the first state with this word, or None if there is none."""
    return next((state for state in states if state["state"] == word), None)


def _together(role: Mapping[str, Any], words: Sequence[str]) -> str:
    """Return how an array ended from how its elements did."""
    if words.count("SUCCEEDED") >= needed_replicas(role):
        return "SUCCEEDED"
    if "FAILED" in words:
        return "FAILED"
    return "CANCELLED"


def finish(
    status: AppStatus, role: Mapping[str, Any], state: Mapping[str, Any] | None, job: Job
) -> bool:
    """Set the end of an array of which nothing runs or waits any more.

    The end of an element is the one that its supervisor wrote, else Slurm's row. Only the
    supervisor can say that the program succeeded. An element without either never ran, since Slurm
    drops those that are cancelled while they wait. If its supervisor had begun, it was lost.

    Args:
        status: that of the job, whose state, message and replicas are set.
        role: as in the record.
        state: what `gather` returned.
        job: what Slurm says of the array.

    Returns:
        False if the end of an element is not known.
    """
    words = [""] * role["num_replicas"]
    if state:
        words = list(state["elements"])
    causes: dict[str, list[str]] = {"FAILED": [], "CANCELLED": []}
    if status.msg:
        causes["FAILED"].append(status.msg)
    for k, word in enumerate(words):
        if word not in _ENDED:
            slurms_word = job.parts.get(str(k))
            if slurms_word is None and not job.parts:
                return False
            words[k], cause = _unwritten(word, slurms_word)
            causes.setdefault(words[k], []).append(f"Slurm job {job.id}: element {k} {cause}")
        replica = status.roles[0].replicas[k]
        if not is_terminal(replica.state):
            replica.state = AppState[words[k]]
    word = _together(role, words)
    status.state = AppState[word]
    status.msg = ""
    if word != "SUCCEEDED":
        status.msg = next(iter(causes.get(word, ())), "")
    return True


def is_unreported(state: Mapping[str, Any] | None, job: Job) -> bool:
    """Tell whether Slurm says COMPLETED of an element whose supervisor has written no end.

    Args:
        state: what `gather` returned.
        job: what Slurm says of the array.
    """
    completed = [
        int(k) for k, word in job.parts.items() if k.isdigit() and clean(word) == "COMPLETED"
    ]
    words: Sequence[str] = []
    if state:
        words = state["elements"]
    return any(k >= len(words) or words[k] not in _ENDED for k in completed)


def _unwritten(begun: str, word: str | None) -> tuple[str, str]:
    """Return how an element ended whose supervisor wrote no end, and in words.

    Args:
        begun: what its supervisor has written, or ``""`` if it has not begun.
        word: Slurm's word for it, or None if Slurm has none.
    """
    if word is None and begun:
        return "FAILED", "was lost"
    if word is None:
        return "CANCELLED", "was cancelled"
    state = to_state(word)
    if state is AppState.CANCELLED:
        return "CANCELLED", "was cancelled"
    if state is AppState.SUCCEEDED and begun:
        return "FAILED", NO_REPORT
    if state is AppState.SUCCEEDED:
        return "FAILED", ENDED_EARLY
    return "FAILED", f"{clean(word)}: {WHY.get(clean(word), 'see batch.log')}"
