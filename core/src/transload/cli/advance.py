"""How far a job is, as a person reads it: a bar where there is a terminal, else words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TextIO

from transload.specs.text import duration_text

if TYPE_CHECKING:
    from transload.specs import AppStatus, Progress

__all__ = ["ProgressNotes", "interruptions_text", "left_text", "percent_text", "progress_text"]

_WIDTH: Final = 10
_FULL: Final = "█"
_EMPTY: Final = "░"
_EVERY: Final = 0.05
"""Where there is no terminal, a line is written for each such part of the work."""
_EVERY_S: Final = 60.0
"""Seconds between two lines of a job that says no part."""


def progress_text(status: AppStatus, stream: TextIO | None = None) -> str:
    """Return ``trainer ███████░░░ 71 % step 710/1000 · 12 min left``; ``""`` if nothing is known.

    Args:
        status: the status of the job.
        stream: where the bar is shown; None: no bar, ``71 %, step 710/1000, 12 min left``.
    """
    progress = status.progress
    if progress is None:
        return ""
    left = left_text(status)
    if stream is None:
        parts = [percent_text(progress), _step_text(progress), left, progress.text or ""]
        return ", ".join(part for part in parts if part)
    name = ""
    if len(status.roles) == 1:
        name = status.roles[0].role
    words = [name, _bar(progress, stream), percent_text(progress), _step_text(progress)]
    parts = [" ".join(word for word in words if word), left, progress.text or ""]
    return " · ".join(part for part in parts if part)


def percent_text(progress: Progress) -> str:
    """Return ``71 %``; ``""`` if it does not say which part of its work is done."""
    if progress.fraction is None:
        return ""
    return f"{int(progress.fraction * 100)} %"


def left_text(status: AppStatus) -> str:
    """Return ``12 min 05 s left``; ``""`` of a job that has ended, or if that is not known."""
    if status.progress is None or status.is_terminal():
        return ""
    left = status.progress.left(time.time())
    if left is None:
        return ""
    return f"{duration_text(max(1.0, left))} left"


def _step_text(progress: Progress) -> str:
    if progress.step is None:
        return ""
    if progress.total is None:
        return f"step {progress.step:,g}"
    return f"step {progress.step:g}/{progress.total:g}"


def _bar(progress: Progress, stream: TextIO) -> str:
    if progress.fraction is None:
        return ""
    full = _FULL
    empty = _EMPTY
    try:
        (full + empty).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        full = "#"
        empty = "-"
    done = int(min(1.0, max(0.0, progress.fraction)) * _WIDTH)
    return full * done + empty * (_WIDTH - done)


def interruptions_text(status: AppStatus) -> str:
    """Return ``2 (preempted, segment)``; ``""`` if it was never interrupted."""
    if not status.interruptions:
        return ""
    replicas = [replica for role in status.roles for replica in role.replicas]
    attempts = [attempt for replica in replicas for attempt in replica.earlier]
    found = {attempt.cause: None for attempt in attempts if attempt.cause not in (None, "failed")}
    causes = [str(cause) for cause in found]
    if not causes:
        return str(status.interruptions)
    return f"{status.interruptions} ({', '.join(causes)})"


class ProgressNotes:
    """Says which of a job's statuses deserve a line about its progress in a log."""

    def __init__(self) -> None:
        self._part: int | None = None
        self._next = 0.0

    def line(self, status: AppStatus) -> str:
        """Return the line, one for each twentieth of the work; ``""`` if there is nothing new."""
        progress = status.progress
        if progress is None:
            return ""
        if progress.fraction is None:
            now = time.monotonic()
            if now < self._next:
                return ""
            self._next = now + _EVERY_S
            return progress_text(status)
        part = int(progress.fraction / _EVERY + 1e-9)
        if part == self._part:
            return ""
        self._part = part
        return progress_text(status)
