"""Build watches for schedulers that receive events, with threads that read them.

`FedWatch` is a `Watch` with its bookkeeping. `Feeder` is a thread that keeps a stream of events
open. A scheduler only adds how to open the stream, and which job an event is about.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Hashable
from typing import Final

from transload.schedulers.api import Change, Kind

__all__ = ["FedWatch", "Feeder"]

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_END_S: Final = 5.0


class FedWatch:
    """A watch to which threads report the changes.

    Subclasses start `Feeder` threads and override `end`, which `close` calls. Any method may be
    called from any thread.

    Args:
        key: job id → the job's key in events. The default is the id itself.
        everything: also report jobs of `feed_ids` that are not watched.
    """

    def __init__(self, key: Callable[[str], Hashable] = str, *, everything: bool = False) -> None:
        self._key = key
        self._everything = everything
        self._ids: dict[Hashable, str] = {}
        self._changed: set[Change] = set()
        self._woken = False
        self._closed = False
        self._condition = threading.Condition()

    # -- for the user of the watch

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. New ids count as changed."""
        wanted = {self._key(app_id): app_id for app_id in app_ids}
        with self._condition:
            if self._closed:
                return
            known = set(self._ids.values())
            self._ids = wanted
            self._changed |= {Change(app_id) for app_id in set(app_ids) - known}
            if not self._everything:
                self._changed = {change for change in self._changed if change.app_id in app_ids}
            if self._changed:
                self._condition.notify_all()

    def wait(self, timeout: float | None) -> set[Change]:
        """Wait for possible changes, and return them.

        Args:
            timeout: the longest wait in seconds. None means no limit.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._changed or self._woken or self._closed, timeout)
            changed = self._changed
            self._changed = set()
            self._woken = False
            return changed

    def wake(self) -> None:
        """Make a `wait` in another thread return immediately."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()

    def close(self) -> None:
        """Release waiting threads and end the feeders. It may be called more than once."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._condition.notify_all()
        self.end()

    # -- for the feeders

    def end(self) -> None:
        """End the feeders. Subclasses override it, and `close` calls it once."""

    def feed(self, key: Hashable, kind: Kind = "state") -> None:
        """Report that the job with this key may have changed, if it is watched."""
        with self._condition:
            app_id = self._ids.get(key)
        if app_id is not None:
            self.feed_ids([app_id], kind)

    def feed_all(self, chosen: Callable[[Hashable], bool] = lambda key: True) -> None:
        """Report that all watched jobs may have changed, or those with a chosen key."""
        with self._condition:
            found = [app_id for key, app_id in self._ids.items() if chosen(key)]
        self.feed_ids(found)

    def feed_ids(self, app_ids: Collection[str], kind: Kind = "state") -> None:
        """Report that these jobs may have changed, if they are watched or ``everything`` is set."""
        with self._condition:
            new = {Change(app_id, kind) for app_id in app_ids} - self._changed
            if not self._everything:
                watched = set(self._ids.values())
                new = {change for change in new if change.app_id in watched}
            if new and not self._closed:
                self._changed |= new
                self._condition.notify_all()


class Feeder:
    """A thread that reads a stream of events and opens it again, with growing pauses, when it ends.

    Args:
        name: name of the thread.
        read: called repeatedly in the thread. It opens the stream, gives `opened` a function that
            cuts it, and returns or raises any error when the stream has ended. It calls `finish` to
            stop for good.
        first_pause: seconds before the second call, if the first was short.
        longest_pause: longest pause in seconds. A longer call counts as a stream that worked.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Feeder], None],
        first_pause: float = _FIRST_PAUSE_S,
        longest_pause: float = _LONGEST_PAUSE_S,
    ) -> None:
        self._read = read
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._cut: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        """Return whether `stop` or `finish` was called."""
        return self._stop.is_set()

    def opened(self, cut: Callable[[], object]) -> bool:
        """Set the function with which another thread cuts the open stream.

        Errors of the function are ignored.

        Returns:
            False if the feeder was stopped meanwhile, so that the stream is already cut.
        """
        with self._lock:
            self._cut = cut
        if self._stop.is_set():
            self._cut_off()
            return False
        return True

    def finish(self) -> None:
        """Do not call `read` again."""
        self._stop.set()

    def stop(self) -> None:
        """Cut the stream and end the thread."""
        self._stop.set()
        self._cut_off()
        if self._thread is not threading.current_thread():
            self._thread.join(_END_S)

    def _cut_off(self) -> None:
        with self._lock:
            cut = self._cut
            self._cut = None
        if cut is not None:
            with contextlib.suppress(Exception):
                cut()

    def _run(self) -> None:
        pause = self._first_pause
        while not self._stop.is_set():
            began = time.monotonic()
            with contextlib.suppress(Exception):  # the stream is opened again after any error
                self._read(self)
            self._cut_off()
            # a stream that worked for a while is opened after the first pause, but the pauses
            # grow for one that breaks immediately
            if time.monotonic() - began >= self._longest_pause:
                pause = self._first_pause
            self._stop.wait(pause)
            pause = min(pause * 2, self._longest_pause)
