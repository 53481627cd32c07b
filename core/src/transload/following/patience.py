"""How long to wait: patience with a state that is unknown, and pauses that grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from transload.errors import ConfigError
from transload.specs import AppState


class Patience:
    """Counts seconds of unbroken UNKNOWN. One known state in between starts the count again.

    Args:
        seconds: how long is allowed; ``float("inf")`` for ever.
        elapsed: seconds of unbroken UNKNOWN so far, when another process counted before (see `elapsed`).
        clock: seconds that only grow.

    Raises:
        ConfigError: if ``seconds`` is not a number of 0 or more.
    """

    def __init__(
        self, seconds: float, *, elapsed: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise ConfigError(f"patience={seconds!r}: must be a number of seconds, 0 or more")
        self.seconds = float(seconds)
        self._clock = clock
        self._since = None if elapsed is None else clock() - elapsed

    def observe(self, state: AppState) -> bool:
        """Take note of a state; return True if patience is exhausted."""
        if state is not AppState.UNKNOWN:
            self._since = None
            return False
        if self._since is None:
            self._since = self._clock()
        return self.exhausted

    @property
    def exhausted(self) -> bool:
        """True once UNKNOWN lasted longer than allowed."""
        return self._since is not None and self._clock() - self._since >= self.seconds

    @property
    def elapsed(self) -> float | None:
        """Seconds of unbroken UNKNOWN so far; None if the state is known."""
        return None if self._since is None else self._clock() - self._since

    @property
    def left(self) -> float | None:
        """Seconds until exhaustion, 0 or more; None if the state is known."""
        return None if self._since is None else max(0.0, self._since + self.seconds - self._clock())


DEFAULT_PATIENCE: Final = 300.0
"""Seconds of unbroken UNKNOWN that are waited through by default."""


GROWTH: Final = 1.5


def longer(pause: float, longest: float) -> float:
    """Return the seconds of the pause after this one, where nothing has changed meanwhile."""
    return min(pause * GROWTH, longest)
