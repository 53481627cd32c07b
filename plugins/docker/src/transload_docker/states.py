"""From the words of an engine to `AppState`, total over the states of a container."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from transload.specs import AppState

STATES: Final = {
    "created": AppState.SUBMITTED,
    "running": AppState.RUNNING,
    "paused": AppState.RUNNING,
    "restarting": AppState.PENDING,
    "removing": AppState.UNKNOWN,
    "exited": AppState.FAILED,  # SUCCEEDED with exit code 0
    "dead": AppState.FAILED,
}
"""State of a container (Engine API, ``ContainerState.Status``) → state of the replica."""

ALIVE: Final = frozenset({"running", "paused", "restarting"})
"""States in which a container has processes."""

_MAX_SIGNAL: Final = 64


def replica_state(status: str, exit_code: int | None, error: str = "") -> AppState:
    """Return the state of a replica from its container's, or UNKNOWN for a word that is not known.

    Args:
        status: what the engine calls the container's state.
        exit_code: exit status as the engine gives it.
        error: why the engine could not start it, else ``""``.
    """
    if status == "exited" and exit_code == 0 and not error:
        return AppState.SUCCEEDED
    if status == "created" and error:
        return AppState.FAILED
    return STATES.get(status, AppState.UNKNOWN)


def exit_code(code: int | None) -> int | None:
    """Return an exit status in the form of `ReplicaStatus`.

    An engine reports a death by signal N as 128 + N, as shells do. A program that itself exits with
    such a number cannot be told apart and is read as killed.
    """
    if code is not None and 128 < code <= 128 + _MAX_SIGNAL:
        return 128 - code
    return code


def seconds(text: str | None) -> float | None:
    """Return an engine's time (RFC 3339) as seconds since the epoch, or None for its zero time."""
    if not text or text.startswith("0001-"):
        return None
    whole, dot, rest = text.partition(".")
    digits = ""
    if dot:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        rest = rest[len(digits) :]
        text = whole + rest
    fraction = int(digits) / 10 ** len(digits) if digits else 0.0
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() + fraction
