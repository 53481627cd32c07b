"""Write the message of a failed job, with the replica, its exit code, and its last lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from transload.specs import NONE, AppStatus, ReplicaStatus, exit_text

LogTail = Callable[[str, int], Sequence[str]]
"""``tail(role, replica)`` → its last lines."""

_LONGEST_LINE: Final = 2000
_FRAMES: Final = 3


def failure_message(
    status: AppStatus, tail: LogTail | None = None, *, handle: str = "", lines: int = 20
) -> str:
    """Return the message of a failed job.

    It has the state and the reason. The first failed replica follows with its exit code and machine,
    then the last frames of a traceback and the last log lines.

    Args:
        status: the final status of the job.
        tail: returns the last log lines of a replica. None means no lines.
        handle: the handle of the job.
        lines: the largest number of log lines.
    """
    text = f"{handle or 'the job'} {status.state.name}"
    if status.msg:
        text += f": {status.msg}"
    replica = status.first_failure()
    if replica is None:
        return text
    text += f"\n{_end_of(replica)}"
    if replica.structured_error_msg != NONE:
        text += "".join(f"\n  {line}" for line in error_frames(replica.structured_error_msg))
    if tail is None or lines == 0:
        return text
    last_lines = list(tail(replica.role, replica.id))[-lines:]
    if last_lines:
        text += f"\nlast lines of {replica.role}/{replica.id}:\n"
        text += "\n".join("    " + line.rstrip("\n")[:_LONGEST_LINE] for line in last_lines)
    return text


def _end_of(replica: ReplicaStatus) -> str:
    """Return the name of a replica, how it ended, its host and its restarts."""
    text = f"{replica.role}/{replica.id} {exit_text(replica.exit_code)}"
    if replica.hostname:
        text += f" on {replica.hostname}"
    if replica.restarts:
        text += f" after {replica.restarts} restarts"
    return text


def error_frames(error: str) -> list[str]:
    """Return the last frames of the traceback in a replica's error."""
    try:
        message = json.loads(error)["message"]
        more = message.get("extraInfo")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
    if not isinstance(more, dict):
        return []
    lines = str(more.get("py_callstack") or "").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    if not starts:
        return []
    first = starts[-_FRAMES:][0]
    return [line for line in lines[first:] if line.startswith("  ")]
