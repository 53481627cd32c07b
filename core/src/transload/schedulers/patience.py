"""Compute the unreachable timeout, and pauses that grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from transload.errors import ConfigError, SchedulerUnavailable
from transload.specs import AppState

__all__ = ["backoff", "patiently"]

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0

DEFAULT_PATIENCE: Final = 300.0
"""The default unreachable timeout, in seconds of UNKNOWN in a row."""

GROWTH: Final = 1.5


def check_seconds(name: str, value: object, *, zero: bool = False) -> None:
    """Check that a value is a number of seconds above 0, or 0 if ``zero``. It may be infinite.

    Raises:
        ConfigError: if it is not. The message has the setting and its value.
    """
    is_allowed = False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        is_allowed = value > 0 or (zero and value == 0)
    if not is_allowed:
        allowed = "a number of seconds, 0 or more" if zero else "a number of seconds above 0"
        raise ConfigError(f"{name}={value!r}: must be {allowed}")


def unknown_since(state: AppState, since: float | None) -> float | None:
    """Return when (``time.monotonic``) a state became UNKNOWN, or None if it is known.

    Args:
        state: the state now.
        since: the result of the last call.
    """
    if state is not AppState.UNKNOWN:
        return None
    if since is None:
        return time.monotonic()
    return since


def unknown_for(since: float | None) -> float:
    """Return the seconds of UNKNOWN in a row so far."""
    if since is None:
        return 0.0
    return time.monotonic() - since


def patience_left(patience: float, since: float | None) -> float:
    """Return the seconds until the unreachable timeout passes.

    This is 0 or less if it has passed, and infinity while the state is known.
    """
    if since is None:
        return float("inf")
    return since + patience - time.monotonic()


def patiently(ask: Callable[[], T], patience: float) -> T:
    """Return what a question to a scheduler gives, which is asked again through an outage.

    Args:
        ask: the question.
        patience: the unreachable timeout, in seconds.

    Raises:
        SchedulerUnavailable: if the scheduler is unreachable for longer.
    """
    end = time.monotonic() + patience
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except SchedulerUnavailable:
            left = end - time.monotonic()
            if left <= 0:
                raise
        time.sleep(min(pause, left))
        pause = backoff(pause, _LONGEST_PAUSE_S)


def backoff(pause: float, longest: float) -> float:
    """Return the seconds of the pause after this one, if nothing has changed meanwhile."""
    return min(pause * GROWTH, longest)
