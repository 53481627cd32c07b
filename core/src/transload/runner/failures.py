"""The message of a job that failed: which replica, how, and its last lines."""

from __future__ import annotations

import json
import re
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
    """Return the message of a failed app: state, replica, exit code, host, reason, last frames,
    last log lines.

    ``tail`` gives the last lines of a replica, of which at most so many ``lines`` are told; None:
    no lines.
    """
    replica = status.first_failure()
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
    if replica is not None and replica.structured_error_msg != NONE:
        text += "".join(f"\n  {line}" for line in error_frames(replica.structured_error_msg))
    shown = (
        list(tail(replica.role, replica.id))[-lines:]
        if replica is not None and tail is not None and lines
        else []
    )
    if replica is not None and shown:
        text += f"\nlast lines of {replica.role}/{replica.id}:\n"
        text += "\n".join("    " + line.rstrip("\n")[:_LONGEST_LINE] for line in shown)
    return text


def error_frames(error: str) -> list[str]:
    """Return the last frames of the traceback in what a replica said of its failure."""
    try:
        message = json.loads(error)["message"]
        more = message.get("extraInfo")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
    lines = str(more.get("py_callstack") or "").splitlines() if isinstance(more, dict) else []
    starts = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    return (
        [line for line in lines[starts[-_FRAMES:][0] :] if line.startswith("  ")] if starts else []
    )


def _beyond(msg: str, replica: ReplicaStatus) -> str:
    """Return what a scheduler's message says beyond which replica failed, and how."""
    name = replica.named_by(msg)
    if not name:
        return msg
    code = re.escape(exit_text(replica.exit_code))
    found = re.fullmatch(
        rf"(?:failed \({code}(?:: (.*))?\)|{code})(?:[:;,] ?(.*))?", msg[len(name) :], re.DOTALL
    )
    return (
        msg[len(name) :].removeprefix("is ")
        if found is None
        else "; ".join(part for part in found.groups() if part)
    )
