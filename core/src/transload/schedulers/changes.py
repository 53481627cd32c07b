"""Pass on which jobs may have changed, and read the streams of events that say so."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

__all__ = ["Changes", "Feeder"]

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_END_S: Final = 5.0


class Changes:
    """The ids of jobs that may have changed, from any thread to the one that waits for them."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._woken = False
        self._condition = threading.Condition()

    def add(self, app_ids: Collection[str] = ()) -> None:
        """Report jobs. The thread that waits goes on, without ids too."""
        with self._condition:
            self._ids.update(app_ids)
            self._woken = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> set[str]:
        """Return the ids since the last call, once there is a report or the seconds are over."""
        with self._condition:
            self._condition.wait_for(lambda: self._woken, seconds)
            found = self._ids
            self._ids = set()
            self._woken = False
            return found


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
