"""Following the logs of any number of replicas in one thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from transload.errors import SchedulerUnavailable
from transload.following.lines import Growth, LogReader

if TYPE_CHECKING:
    from transload.schedulers import LogPage, SchedulerBase, Stream

_FIRST_PAUSE_S: Final = 0.005
_SILENCE_S: Final = 5.0

Sink = Callable[[str, int, "LogPage"], None]
"""Takes pages: ``sink(role, replica, page)``."""


class Follower:
    """Reads the logs of many replicas by cursor, without a thread or an open file per replica.

    Args:
        scheduler: where the app runs.
        app_id: the app.
        replicas: ``(role, number)`` of those to read.
        stream: which output.
        sink: gets the pages, in order within a replica.
    """

    def __init__(
        self, scheduler: SchedulerBase, app_id: str, replicas: Sequence[tuple[str, int]], stream: Stream, sink: Sink
    ) -> None:
        self._scheduler = scheduler
        self._app_id = app_id
        self._logs = [LogReader(scheduler, app_id, role, k, stream) for role, k in replicas]
        self._sink = sink
        self._wake = threading.Event()
        self._growth: Growth | None = None
        self._stopped = False
        self._ended = False
        self.dropped = 0
        """Bytes that were lost to a size limit before they were read."""

    @property
    def complete(self) -> bool:
        """Tell whether all replicas have ended and everything was read."""
        return all(log.complete for log in self._logs)

    def read(self) -> bool:
        """Hand on everything that is there now; tell whether there was anything."""
        found = False
        for log in self._logs:
            while not log.complete and not self._stopped:
                page = log.read()
                self.dropped += page.dropped
                if page.lines:
                    self._sink(log.role, log.replica, page)
                if not log.moved:
                    break
                found = True
        return found

    def follow(self) -> None:
        """Hand on lines until every replica has ended, or `stop` is called.

        Once `app_ended` was called, a replica that stays silent for some seconds is given up.
        """
        # made before the first look: what is written in between is seen twice, never not
        self._growth = Growth(self._scheduler, self._app_id)
        try:
            self._follow(self._growth)
        finally:
            self._growth.close()

    def _follow(self, growth: Growth) -> None:
        silent_since = time.monotonic()
        while not self._stopped:
            began = time.monotonic()
            try:
                found = self.read()
            except SchedulerUnavailable:
                found = False
            if self.complete:
                return
            now = time.monotonic()
            if found or not self._ended:
                silent_since = now
            elif now - silent_since > _SILENCE_S:
                return
            if found:
                growth.seen()
            # many replicas that write all the time: look at most half of the time
            if now - began > _FIRST_PAUSE_S and not self._ended:
                self._wake.wait(now - began)
            growth.wait(0.05 if self._ended else None)

    def app_ended(self) -> None:
        """Say that nothing new will be written: what is there is read at once."""
        self._ended = True
        self._hurry()

    def stop(self) -> None:
        """Make `follow` return soon. May be called from any thread."""
        self._stopped = True
        self._hurry()

    def _hurry(self) -> None:
        self._wake.set()
        if self._growth is not None:
            self._growth.wake()
