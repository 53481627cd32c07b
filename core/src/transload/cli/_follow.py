"""Following the logs of any number of replicas in one thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from transload.errors import AppNotFound, SchedulerUnavailable

if TYPE_CHECKING:
    from transload.schedulers import Scheduler, Stream
    from transload.schedulers.optional import LogWatch

_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5
_SILENCE_S: Final = 5.0
_PAGE: Final = 1 << 18


Sink = Callable[[str, int, list[str]], None]
"""Takes whole lines: ``sink(role, replica, lines)``."""


@dataclass(slots=True)
class _Log:
    role: str
    k: int
    cursor: str | None = None
    complete: bool = False


class Follower:
    """Reads the logs of many replicas by cursor, without a thread or an open file per replica.

    Args:
        scheduler: where the app runs.
        app_id: the app.
        replicas: ``(role, number)`` of those to read.
        stream: which output.
        sink: gets the lines, whole, in order within a replica.
    """

    def __init__(
        self, scheduler: Scheduler, app_id: str, replicas: Sequence[tuple[str, int]], stream: Stream, sink: Sink
    ) -> None:
        self._scheduler = scheduler
        self._app_id = app_id
        self._logs = [_Log(role, k) for role, k in replicas]
        self._stream = stream
        self._sink = sink
        self._wake = threading.Event()
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
                page = self._scheduler.log_read(self._app_id, log.role, log.k, self._stream, log.cursor, _PAGE)
                moved = bool(page.lines) or (page.cursor != log.cursor and log.cursor is not None)
                log.cursor, log.complete = page.cursor, page.complete
                self.dropped += page.dropped
                if page.lines:
                    self._sink(log.role, log.k, page.lines)
                if not moved:
                    break
                found = True
        return found

    def follow(self) -> None:
        """Hand on lines until every replica has ended, or `stop` is called.

        Once `app_ended` was called, a replica that stays silent for some seconds is given up.
        """
        # made before the first look: what is written in between is seen twice, never not
        watch = self._watch()
        try:
            self._follow(watch)
        finally:
            if watch is not None:
                watch.close()

    def _watch(self) -> LogWatch | None:
        make = getattr(self._scheduler, "log_watch", None)
        try:
            watch: LogWatch | None = make(self._app_id, [(log.role, log.k) for log in self._logs]) if make else None
        except AppNotFound:  # looking tells how it ended
            return None
        return watch

    def _follow(self, watch: LogWatch | None) -> None:
        pause = _FIRST_PAUSE_S
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
            if watch is None or self._ended:
                pause = _FIRST_PAUSE_S if found else min(pause * 1.5, 0.05 if self._ended else _LONGEST_PAUSE_S)
                self._wake.wait(pause)
                self._wake.clear()
                continue
            if found:
                watch.grew()
            # many replicas that write all the time: look at most half of the time
            if now - began > _FIRST_PAUSE_S:
                self._wake.wait(now - began)
            watch.wait(_LONGEST_PAUSE_S)

    def app_ended(self) -> None:
        """Say that nothing new will be written: what is there is read at once."""
        self._ended = True
        self._wake.set()

    def stop(self) -> None:
        """Make `follow` return soon. May be called from any thread."""
        self._stopped = True
        self._wake.set()
