"""Parse and format durations, points in time and sizes."""

from __future__ import annotations

import time
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING

from transload.errors import SpecError
from transload.specs.states import AppState
from transload.specs.text import duration_text, parse_duration, size_text, usage_texts

if TYPE_CHECKING:
    from transload.specs import AppStatus

__all__ = [
    "clock_text",
    "duration_text",
    "limit_text",
    "parse_duration",
    "parse_when",
    "segment_text",
    "size_text",
    "time_text",
    "usage_texts",
]


def parse_when(text: str, what: str, now: datetime | None = None) -> datetime:
    """Parse a duration before now (``10m``) or a time in ISO 8601. Times without zone are local."""
    text = text.strip()
    try:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            now = now or datetime.now().astimezone()
            return now - timedelta(seconds=parse_duration(text))
        if when.tzinfo is not None:
            return when
        if when.year == MAXYEAR:  # Python 3.13 has no local zone on its last day
            return when.replace(tzinfo=UTC)
        return when.astimezone()
    except (ValueError, OverflowError):
        # a SpecError is a ValueError, and a local time in the year 0 raises one, too
        allowed = "a duration (10m, 2h: that long ago) or a time (2025-01-31T08:00)"
        raise SpecError(f"{what}={text!r}: must be {allowed}") from None


def clock_text(seconds: float) -> str:
    """Return ``0:07``, ``12:30`` or ``1:02:03``."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


def time_text(when: float | None) -> str:
    """Return local time as ``2025-01-31 08:00:00``, or ``""`` for None."""
    if when is None:
        return ""
    return datetime.fromtimestamp(when).isoformat(" ", "seconds")


def limit_text(status: AppStatus) -> str:
    """Return a job's time limit and what is left of it.

    It is a text such as ``2 h 00 min, 1 h 25 min left (until 2025-01-31 08:00:00)``.

    Returns:
        The text, or ``""`` without a limit.
    """
    parts = []
    if status.time_limit is not None:
        parts.append(duration_text(status.time_limit))
    if status.ends_by is not None and not status.is_terminal():
        left = duration_text(max(0.0, status.ends_by - time.time()))
        parts.append(f"{left} left (until {time_text(status.ends_by)})")
    return ", ".join(parts)


def segment_text(status: AppStatus, length: float | None = None) -> str:
    """Return how long a job's present segment goes on.

    It is a text such as ``11 h 40 min left (until 2025-01-31 08:00:00), then the next one begins``.

    Args:
        status: that of the job.
        length: the longest time of a segment, in seconds, which is said first. None means that it
            is not known.

    Returns:
        The text, or ``""`` without segments.
    """
    parts = []
    if length is not None:
        parts.append(duration_text(length))
    if status.segment_ends is not None and status.state is AppState.RUNNING:
        left = duration_text(max(0.0, status.segment_ends - time.time()))
        until = time_text(status.segment_ends)
        parts.append(f"{left} left (until {until}), then the next one begins")
    return ", ".join(parts)
