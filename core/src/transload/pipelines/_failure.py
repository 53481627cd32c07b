"""What to tell people when an app failed: which replica, how, and its last words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from transload.specs import AppState, AppStatus, ReplicaStatus, exit_text

LogTail = Callable[[str, int], Sequence[str]]
"""``tail(role, replica)`` → its last lines."""

_LONGEST_LINE: Final = 2000


def failed_replica(status: AppStatus) -> ReplicaStatus | None:
    """Return the replica that failed first, as far as its scheduler can tell; None if none did."""
    replicas = [replica for role in status.roles for replica in role.replicas]
    named = next((each for each in replicas if _named(status.msg, each)), None)
    if named is not None:
        return named
    bad = [each for each in replicas if each.state is AppState.FAILED or (each.exit_code not in (None, 0))]
    # a gang's others are ended by a signal after the first failure: an exit code of its own comes first
    bad.sort(key=lambda each: ((each.exit_code or -1) < 0, each.end_time or float("inf")))
    return bad[0] if bad else None


def failure_message(status: AppStatus, tail: LogTail | None = None, *, handle: str = "", lines: int = 20) -> str:
    """Return the message of a failed app: state, replica, exit code, reason, last log lines.

    Args:
        status: the final status.
        tail: gives last lines of a replica; None: no lines.
        handle: the app, for the first line.
        lines: how many lines at most.
    """
    replica = failed_replica(status)
    text = f"{handle or 'the app'} {status.state.name}"
    if replica is not None:
        text += f": {replica.role}/{replica.id} {exit_text(replica.exit_code)}"
        if replica.hostname:
            text += f" on {replica.hostname}"
        if replica.restarts:
            text += f" after {replica.restarts} restarts"
    said = status.msg if replica is None else _beyond(status.msg, replica)
    if said:
        text += f": {said}"
    shown = list(tail(replica.role, replica.id))[-lines:] if replica is not None and tail is not None and lines else []
    if replica is not None and shown:
        text += f"\nlast lines of {replica.role}/{replica.id}:\n"
        text += "\n".join("    " + line.rstrip("\n")[:_LONGEST_LINE] for line in shown)
    return text


def _named(msg: str, replica: ReplicaStatus) -> str:
    """Return what a scheduler's message calls a replica that it begins with; ``""`` if it begins otherwise."""
    names = (f"role {replica.role!r}, replica {replica.id} ", f"{replica.role}/{replica.id} ")
    return next((name for name in names if msg.startswith(name)), "")


def _beyond(msg: str, replica: ReplicaStatus) -> str:
    """Return what a scheduler's message says beyond which replica failed, and how."""
    name = _named(msg, replica)
    if not name:
        return msg
    code = re.escape(exit_text(replica.exit_code))
    found = re.fullmatch(rf"(?:failed \({code}(?:: (.*))?\)|{code})(?:[:;,] ?(.*))?", msg[len(name) :], re.DOTALL)
    return msg[len(name) :].removeprefix("is ") if found is None else "; ".join(part for part in found.groups() if part)
