"""Requests for logs that stay open from one page to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """End it."""


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Closable)


class OpenReadings(Generic[K, R]):
    """Readings of logs that may go on where their last page ended.

    Many servers look for a place in a log from its beginning on. Then the time to ask anew for each
    page would grow with the square of the log. May be used by several threads.

    Args:
        most: how many are kept; beyond, the one that was used longest ago is closed.
        idle_seconds: a reading that is not used for so long is closed.
    """

    def __init__(self, most: int = 64, idle_seconds: float = 30.0) -> None:
        self.most = most
        self.idle_seconds = idle_seconds
        self._open: dict[K, tuple[float, R]] = {}  # place → when it was kept, and the reading
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._open)

    def take(self, place: K) -> R | None:
        """Return the reading that goes on at a place, which the caller then has to close or keep.

        Returns:
            None if there is none.
        """
        with self._lock:
            _, reading = self._open.pop(place, (0.0, None))
            old = self._remove_old(time.monotonic())
        _close(old)
        return reading

    def keep(self, place: K, reading: R) -> None:
        """Keep a reading for the caller that goes on at a place."""
        now = time.monotonic()
        with self._lock:
            _, replaced = self._open.pop(place, (now, None))
            self._open[place] = (now, reading)
            old = self._remove_old(now)
        if replaced is not None:
            old.append(replaced)
        _close(old)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            kept = [reading for _, reading in self._open.values()]
            self._open.clear()
        _close(kept)

    def _remove_old(self, now: float) -> list[R]:
        """Remove readings that are idle or too many, and return them; the lock is held."""
        places = list(self._open)  # oldest first
        idle = [place for place in places if now - self._open[place][0] > self.idle_seconds]
        too_many = places[: max(0, len(places) - self.most)]
        return [self._open.pop(place)[1] for place in {*idle, *too_many}]


def _close(readings: list[R]) -> None:
    for reading in readings:
        reading.close()
