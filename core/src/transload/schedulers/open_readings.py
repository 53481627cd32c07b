"""Keep requests for logs open from one page to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """An object that can be closed."""

    def close(self) -> None:
        """End it."""


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Closable)


class OpenReadings(Generic[K, R]):
    """Readings of logs that can continue where their last page ended.

    Many servers search for a place in a log from its beginning. Then the time for a new request for
    each page would grow with the square of the log's size. Several threads may use this object.

    Args:
        most: the largest number of readings. Beyond it, the least recently used one is closed.
        idle_seconds: a reading that is not used for this long is closed.
    """

    def __init__(self, most: int = 64, idle_seconds: float = 30.0) -> None:
        self.most = most
        self.idle_seconds = idle_seconds
        self._open: dict[K, tuple[float, R]] = {}  # place → (time, reading)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of readings."""
        return len(self._open)

    def take(self, place: K) -> R | None:
        """Return the reading that continues at a place. The caller must close or keep it.

        Returns:
            The reading, or None if there is none.
        """
        with self._lock:
            _, reading = self._open.pop(place, (0.0, None))
            old = self._remove_old(time.monotonic())
        _close(old)
        return reading

    def keep(self, place: K, reading: R) -> None:
        """Keep a reading for the next caller at a place."""
        now = time.monotonic()
        with self._lock:
            _, replaced = self._open.pop(place, (now, None))
            self._open[place] = (now, reading)
            old = self._remove_old(now)
        if replaced is not None:
            old.append(replaced)
        _close(old)

    def close(self) -> None:
        """Close all readings."""
        with self._lock:
            kept = [reading for _, reading in self._open.values()]
            self._open.clear()
        _close(kept)

    def _remove_old(self, now: float) -> list[R]:
        """Remove and return readings that are idle or too many. The caller holds the lock."""
        places = list(self._open)  # oldest first
        idle = [place for place in places if now - self._open[place][0] > self.idle_seconds]
        too_many = places[: max(0, len(places) - self.most)]
        return [self._open.pop(place)[1] for place in {*idle, *too_many}]


def _close(readings: list[R]) -> None:
    for reading in readings:
        reading.close()
