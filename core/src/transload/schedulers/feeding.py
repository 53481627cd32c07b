"""Watches that are fed by threads: what a scheduler needs that hears of changes from its engine.

`FedWatch` is a `Watch` with the bookkeeping done; `Feeder` is a thread that keeps an engine's
stream of events open. A scheduler brings what only it can know: how the stream is opened, and which
app an event is about.
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
    """A watch whose changes are told to it, from any thread.

    Subclasses start `Feeder` threads and override `end`, which `close` calls. Any method may be
    called from any thread.

    Args:
        key: app id → what events of the engine name the app by; default: the id itself.
        everything: report also apps that `feed_ids` names and nobody watches.
    """

    def __init__(self, key: Callable[[str], Hashable] = str, *, everything: bool = False) -> None:
        self._key = key
        self._everything = everything
        self._ids: dict[Hashable, str] = {}
        self._changed: set[Change] = set()
        self._woken = False
        self._closed = False
        self._condition = threading.Condition()

    # -- for who watches

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids; those just added count as changed."""
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
        """Return what may have changed; block up to ``timeout`` seconds (None: no limit)."""
        with self._condition:
            self._condition.wait_for(lambda: self._changed or self._woken or self._closed, timeout)
            changed = self._changed
            self._changed = set()
            self._woken = False
            return changed

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()

    def close(self) -> None:
        """Let waiting threads go, and end what feeds it. May be called more than once."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._condition.notify_all()
        self.end()

    # -- for who feeds it

    def end(self) -> None:
        """End the feeders; called once, by `close`. To be overridden."""

    def feed(self, key: Hashable, kind: Kind = "state") -> None:
        """Tell that the app of this key may have changed; nothing happens if it is not watched."""
        with self._condition:
            app_id = self._ids.get(key)
        if app_id is not None:
            self.feed_ids([app_id], kind)

    def feed_all(self, chosen: Callable[[Hashable], bool] = lambda key: True) -> None:
        """Tell that every watched app may have changed, or those whose key is chosen."""
        with self._condition:
            found = [app_id for key, app_id in self._ids.items() if chosen(key)]
        self.feed_ids(found)

    def feed_ids(self, app_ids: Collection[str], kind: Kind = "state") -> None:
        """Tell that these apps may have changed; those that are not watched are left out unless
        ``everything``.
        """
        with self._condition:
            new = {Change(app_id, kind) for app_id in app_ids} - self._changed
            if not self._everything:
                watched = set(self._ids.values())
                new = {change for change in new if change.app_id in watched}
            if new and not self._closed:
                self._changed |= new
                self._condition.notify_all()


class Feeder:
    """A thread that reads a stream of events, and opens it again, with growing pauses, whenever it
    ends.

    Args:
        name: name of the thread.
        read: called in the thread again and again; opens the stream, tells `opened` how it is cut,
            and returns or raises (whatever it is) when the stream has ended. To give up for good it
            calls `finish`.
        first_pause: seconds between two calls, if the first did not last.
        longest_pause: seconds; a call that lasted so long counts as a stream that worked.
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
        """Whether `stop` or `finish` was called."""
        return self._stop.is_set()

    def opened(self, cut: Callable[[], object]) -> bool:
        """Tell how the stream just opened is cut off, from another thread; what it raises is
        ignored.

        Returns:
            False if the feeder was stopped meanwhile: the stream has been cut already.
        """
        with self._lock:
            self._cut = cut
        if self._stop.is_set():
            self._cut_off()
            return False
        return True

    def finish(self) -> None:
        """Let `read` be called no more."""
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
            with contextlib.suppress(Exception):  # however a stream breaks, it is opened again
                self._read(self)
            self._cut_off()
            # a stream that worked for a while is opened again after the first pause; one that
            # breaks immediately is not opened again and again
            if time.monotonic() - began >= self._longest_pause:
                pause = self._first_pause
            self._stop.wait(pause)
            pause = min(pause * 2, self._longest_pause)
