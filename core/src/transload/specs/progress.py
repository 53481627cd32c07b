"""How far a job is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Progress"]

_NUMBERS = ("fraction", "step", "total", "eta_seconds", "at")


@dataclass
class Progress:
    """How far a job is, by its own account; what it does not say is None.

    Args:
        fraction: part of the work that is done, 0 to 1.
        step: number of the step that it is at.
        total: number of steps in all.
        eta_seconds: seconds of work that were left ``at`` that time.
        at: when it said so, seconds since the epoch.
        text: what it says beside that, on one line.
    """

    fraction: float | None = None
    step: float | None = None
    total: float | None = None
    eta_seconds: float | None = None
    at: float | None = None
    text: str | None = None

    WHEN_SET = ("fraction", "step", "total", "eta_seconds", "at", "text")

    def left(self, now: float) -> float | None:
        """Return the seconds of work that are left, as seen now; None if that is not known.

        Args:
            now: seconds since the epoch.
        """
        if self.eta_seconds is None:
            return None
        passed = max(0.0, now - (self.at or now))
        return max(0.0, self.eta_seconds - passed)

    @staticmethod
    def from_value(value: Any) -> Progress | None:
        """Read the JSON form; what is wrong in it is left out, and None is returned if all is."""
        if not isinstance(value, dict):
            return None
        found = Progress()
        for name in _NUMBERS:
            number = value.get(name)
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                setattr(found, name, number)
        text = value.get("text")
        if isinstance(text, str):
            found.text = text
        if found == Progress(at=found.at):
            return None
        return found
