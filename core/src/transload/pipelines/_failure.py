"""What to tell people when an app failed: which replica, how, and its last words."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from transload.errors import TransloadError
from transload.schedulers.api import Stream
from transload.specs import AppState, AppStatus, ReplicaStatus, exit_text

if TYPE_CHECKING:
    from transload.schedulers.api import Scheduler

LogTail = Callable[[str, int], Sequence[str]]
"""``tail(role, replica)`` → its last lines."""

MOST_BYTES: Final = 64 << 20
"""How much of a log is read through, at most, for its last lines."""

_LONGEST_LINE: Final = 2000


def failed_replica(status: AppStatus) -> ReplicaStatus | None:
    """Return the replica that failed first, as far as its scheduler can tell; None if none did."""
    replicas = [replica for role in status.roles for replica in role.replicas]
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
    if status.msg:
        text += f": {status.msg}"
    shown = list(tail(replica.role, replica.id))[-lines:] if replica is not None and tail is not None and lines else []
    if replica is not None and shown:
        text += f"\nlast lines of {replica.role}/{replica.id}:\n"
        text += "\n".join("    " + line.rstrip("\n")[:_LONGEST_LINE] for line in shown)
    return text


def read_tail(scheduler: Scheduler, app_id: str, role: str, replica: int, lines: int = 20) -> list[str]:
    """Return the last lines of a replica, of stderr or, if that was silent, of stdout; nothing if there is no log.

    A scheduler may offer ``log_tail(app_id, role, replica, stream, lines)``; else the log is read through.
    """
    for stream in (Stream.STDERR, Stream.STDOUT):
        try:
            own = getattr(scheduler, "log_tail", None)
            if callable(own):
                found = list(own(app_id, role, replica, stream, lines))
            else:
                found = _read_through(scheduler, app_id, role, replica, stream, lines)
        except TransloadError:
            continue
        if found:
            return found
    return []


def _read_through(scheduler: Scheduler, app_id: str, role: str, replica: int, stream: Stream, lines: int) -> list[str]:
    kept: deque[str] = deque(maxlen=lines)
    cursor: str | None = None
    budget = MOST_BYTES
    while budget > 0:
        page = scheduler.log_read(app_id, role, replica, stream, cursor)
        kept.extend(page.lines)
        if page.complete or not page.lines:
            break
        budget -= sum(map(len, page.lines))
        cursor = page.cursor
    return list(kept)
