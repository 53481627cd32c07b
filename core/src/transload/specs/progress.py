"""Describe how far a job is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

from transload.specs.checks import LATEST, LONGEST_S
from transload.specs.text import duration_text

__all__ = ["Progress", "is_next_part"]

_NUMBERS: Final = {
    "fraction": 1.0,
    "step": 1e300,
    "total": 1e300,
    "eta_seconds": LONGEST_S,
    "at": LATEST,
}
"""The fields that are numbers, none of them negative, and the largest that each may be."""

_PARTS: Final = 20
"""A log has a line for each such part of the work."""
_PERCENTS: Final = 100
"""A display changes with each such part of the work."""
_EVERY_S: Final = 60.0
"""Seconds between two lines, and two changes, of a job that says no part, or a smaller one."""
_RATE_S: Final = 300.0
"""Seconds over which the rate of a job is measured."""


@dataclass
class Progress:
    """How far a job says that it has come. What it does not say is None.

    Args:
        fraction: part of the work that is done, 0 to 1.
        step: number of the step that it is at.
        total: number of steps in all.
        eta_seconds: seconds of work that were left ``at`` that time.
        at: when it said so, seconds since the epoch.
        text: what it says beside that, on one line.
        history: some of what it said before, oldest first. Each pair holds the time (seconds since
            the epoch), and the ``fraction`` then, or the ``step`` of a job that says no fraction.
    """

    fraction: float | None = None
    step: float | None = None
    total: float | None = None
    eta_seconds: float | None = None
    at: float | None = None
    text: str | None = None
    history: list[tuple[float, float]] = field(default_factory=list)

    WHEN_SET = ("fraction", "step", "total", "eta_seconds", "at", "text", "history")

    def without_history(self) -> Progress:
        """Return what it says now, without what it said before."""
        return replace(self, history=[])

    def left(self, now: float) -> float | None:
        """Return the seconds of work that are left now.

        Args:
            now: seconds since the epoch.

        Returns:
            The seconds, or None if they are not known.
        """
        if self.eta_seconds is None:
            return None
        passed = max(0.0, now - (self.at or now))
        return max(0.0, self.eta_seconds - passed)

    def part(self) -> int:
        """Return a number that grows with each twentieth of the work, which a line is worth."""
        return self._portion(_PARTS)

    def percent(self) -> int:
        """Return a number that grows with each whole percent of the work."""
        return self._portion(_PERCENTS)

    def _portion(self, portions: int) -> int:
        """Return how many portions of the work are done.

        A job that says no fraction is at a new portion each minute.
        """
        if self.fraction is None:
            return int((self.at or 0.0) // _EVERY_S)
        return int(self.fraction * portions + 1e-9)

    def percent_text(self) -> str:
        """Return a text such as ``71 %``, or ``""`` if the job says no fraction."""
        if self.fraction is None:
            return ""
        return f"{self.percent()} %"

    def step_text(self) -> str:
        """Return a text such as ``step 710/1000``, or ``""`` if the job says no step."""
        if self.step is None:
            return ""
        if self.total is None:
            return f"step {self.step:,g}"
        return f"step {self.step:g}/{self.total:g}"

    def left_text(self, now: float) -> str:
        """Return a text such as ``12 min 05 s left``.

        Args:
            now: seconds since the epoch.

        Returns:
            The text, or ``""`` if the time is not known or was estimated to be over.
        """
        left = self.left(now)
        if not left:
            return ""
        return f"{duration_text(max(1.0, left))} left"

    def rate_text(self) -> str:
        """Return the rate of the last minutes, such as ``2.5 steps a second``.

        Work that an interruption has undone does not count.

        Returns:
            The text, or ``""`` if the rate is not known.
        """
        rate = self._rate()
        if rate is None:
            return ""
        per = "a second"
        if rate < 1.0:
            rate *= 60.0
            per = "a minute"
        if rate < 1.0:
            rate *= 60.0
            per = "an hour"
        return f"{rate:.3g} steps {per}"

    def _rate(self) -> float | None:
        """Return the steps a second of the last minutes, or None if that is not known."""
        if self.step is None or self.at is None:
            return None
        scale = 1.0
        if self.fraction is not None:
            if self.total is None:
                return None
            scale = self.total
        first_at = self.at
        first = self.step
        for at, done in reversed(self.history):
            if at < self.at - _RATE_S or done * scale > first:
                break
            first_at = at
            first = done * scale
        if first_at >= self.at or first >= self.step:
            return None
        return (self.step - first) / (self.at - first_at)

    def in_words(self, now: float | None = None) -> str:
        """Return ``71 %, step 710/1000, 12 min 05 s left, epoch 3``, or what is known of it.

        Args:
            now: seconds since the epoch. None means that the job has ended, and nothing is left.
        """
        parts = [self.percent_text(), self.step_text()]
        if now is not None:
            parts.append(self.left_text(now))
        parts.append(self.text or "")
        return ", ".join(part for part in parts if part)

    @staticmethod
    def from_value(value: Any) -> Progress | None:
        """Read the JSON form, without what is wrong in it.

        Returns:
            The progress, or None if nothing in it is right.
        """
        if not isinstance(value, dict):
            return None
        found = Progress()
        for name, most in _NUMBERS.items():
            number: Any = value.get(name)
            if _is_finite(number) and 0 <= number <= most:
                setattr(found, name, number)
        text = value.get("text")
        if isinstance(text, str):
            found.text = text
        if found == Progress(at=found.at):
            return None
        found.history = _points_of(value.get("history"))
        return found


def _points_of(value: Any) -> list[tuple[float, float]]:
    """Return those of the pairs in a JSON list that are finite numbers."""
    if not isinstance(value, list):
        return []
    pairs = [each for each in value if isinstance(each, (list, tuple)) and len(each) == 2]
    return [(at, done) for at, done in pairs if _is_finite(at) and _is_finite(done)]


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_next_part(progress: Progress, part: int | None, at: float | None) -> bool:
    """Tell whether progress deserves another line in a log.

    It does with each further part of the work. Progress that falls by more than one part does so
    too, because the job has begun again further back. That has a line once a minute only, since two
    processes may report theirs in turn.

    Args:
        progress: what the job says.
        part: the part of its work (`Progress.part`) that had a line last, or None if none had.
        at: when it said so, or None if that is not known.
    """
    if part is None or progress.part() > part:
        return True
    if progress.part() >= part - 1:
        return False
    return at is None or progress.at is None or progress.at >= at + _EVERY_S
