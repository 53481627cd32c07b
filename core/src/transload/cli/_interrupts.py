"""Ctrl-C and SIGTERM while attached to an app: the first is an event, the second leaves at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queue import SimpleQueue


class Left(KeyboardInterrupt):
    """The second Ctrl-C."""


class Interrupts:
    """Handles SIGINT and SIGTERM for the length of a ``with`` block.

    Args:
        events: gets ``("signal", number)`` for the first; the second raises `Left` in the main thread.
    """

    def __init__(self, events: SimpleQueue[tuple[str, Any]]) -> None:
        self._events = events
        self._before: dict[int, Any] = {}
        self._count = 0

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # ignored from the start (nohup, a background job of a script): stays so
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            raise Left
        self._events.put(("signal", number))
