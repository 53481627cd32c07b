"""Show how far a job is, by a bar where there is a terminal, else in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TextIO

from transload.specs.progress import is_next_part

if TYPE_CHECKING:
    from transload.specs import AppStatus, Progress

__all__ = ["ProgressNotes", "interruptions_text", "left_text", "progress_text"]

_WIDTH: Final = 10
_FULL: Final = "█"
_EMPTY: Final = "░"


def progress_text(status: AppStatus, stream: TextIO | None = None) -> str:
    """Return how far a job is.

    It is a text such as ``trainer ███████░░░ 71 % step 710/1000 · 12 min left``.

    Args:
        status: the status of the job.
        stream: where the bar is shown. None means no bar, as in
            ``71 %, step 710/1000, 12 min left``.

    Returns:
        The text, or ``""`` if nothing is known.
    """
    progress = status.progress
    if progress is None:
        return ""
    now: float | None = time.time()
    if status.is_terminal():
        now = None
    if stream is None:
        return progress.in_words(now)
    name = ""
    if len(status.roles) == 1:
        name = status.roles[0].role
    words = [name, _bar(progress, stream), progress.percent_text(), progress.step_text()]
    parts = [" ".join(word for word in words if word), left_text(status), progress.text or ""]
    return " · ".join(part for part in parts if part)


def left_text(status: AppStatus) -> str:
    """Return a text such as ``12 min 05 s left``.

    Returns:
        The text, or ``""`` for a job that has ended, or if the time is not known.
    """
    if status.progress is None or status.is_terminal():
        return ""
    return status.progress.left_text(time.time())


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
    """Return a text such as ``2 (preempted, segment)``, or ``""`` if it was never interrupted."""
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
        self._at: float | None = None

    def line(self, status: AppStatus) -> str:
        """Return a line for each twentieth of the work, or ``""`` if there is nothing new."""
        progress = status.progress
        if progress is None or not is_next_part(progress, self._part, self._at):
            return ""
        self._part = progress.part()
        self._at = progress.at
        return progress_text(status)
