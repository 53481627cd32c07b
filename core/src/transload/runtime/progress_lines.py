"""Show the progress of long work, in one changing line of a terminal, or by lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO, Final, Protocol

__all__ = ["changing_line", "lines_to", "pieces", "progress", "say"]


class StatusLine(Protocol):
    """A place for progress, which is a terminal's last line or a log."""

    shows_status: bool

    def set_status(self, text: str) -> None:
        """Replace the changing line."""

    def note(self, text: str) -> None:
        """Write a line that stays."""

    def end(self) -> None:
        """Remove the changing line."""


screen: StatusLine | None = None
"""The command line's place for progress, except with ``--json``.

If it is None, progress goes where `lines_to` says, else to the logger ``transload``.
"""
_log: ContextVar[Callable[[str], None] | None] = ContextVar("transload_progress", default=None)
SILENT_S: Final = 1.0
"""On a terminal, work that takes less time than this is not shown."""
ON_SCREEN_S: Final = 0.2
"""Seconds between two texts of a terminal's changing line."""
IN_LOG_S: Final = 10.0
"""Seconds between two lines of a log."""
_MB: Final = 1 << 20


class _ChangingLine:
    """A text that changes, on a terminal's last line or as lines of a log.

    Args:
        rare: whether changes are rare, so that a terminal shows each of them and keeps the last.
    """

    def __init__(self, rare: bool) -> None:
        self._rare = rare
        self._on_terminal = screen is not None and screen.shows_status
        self._last = ""
        self._shown = ""
        self._next_at = time.monotonic() + self._first_pause()

    def _first_pause(self) -> float:
        if self._on_terminal and not self._rare:
            return SILENT_S
        return self._pause()

    def _pause(self) -> float:
        """Return the least number of seconds between two shown texts."""
        if not self._on_terminal:
            return IN_LOG_S
        return 0.0 if self._rare else ON_SCREEN_S

    def show(self, text: str) -> None:
        """Show a text, unless another one was shown too recently."""
        self._last = text
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + self._pause()
        self._shown = text
        if screen is not None and self._on_terminal:
            screen.set_status(f"transload: {text}")
        else:
            say(text)

    def end(self) -> None:
        """Remove the line. If changes are rare, write the last text as a line that stays."""
        if screen is not None and self._on_terminal:
            screen.end()
        is_missing = self._on_terminal or self._last != self._shown
        if self._rare and self._last and is_missing:
            say(self._last)


def say(text: str) -> None:
    """Write a line that stays to where progress goes."""
    if screen is not None:
        screen.note(text)
        return
    log = _log.get()
    if log is not None:
        log(text)
        return
    import logging  # most programs that reach this have imported it already

    logging.getLogger("transload").info(text)


@contextmanager
def lines_to(log: Callable[[str], None]) -> Iterator[None]:
    """Have progress written by a log of the caller's in this block, unless there is a screen.

    It holds in this thread, and in those that get a copy of its context.

    Args:
        log: takes one line.
    """
    token = _log.set(log)
    try:
        yield
    finally:
        _log.reset(token)


@contextmanager
def changing_line(*, rare: bool = False) -> Iterator[Callable[[str], None]]:
    """Show a changing text. A text that comes too soon after another is left out.

    Args:
        rare: whether changes are rare, so that a terminal shows each and the last one stays.

    Returns:
        A function to call with each new text.
    """
    line = _ChangingLine(rare)
    try:
        yield line.show
    finally:
        line.end()


@contextmanager
def progress(what: str, total: int = 0) -> Iterator[Callable[[int], None]]:
    """Show the progress of a copy, an upload or a download.

    Args:
        what: the work, such as ``pushing registry/code``.
        total: bytes in all, or 0 if the number is unknown.

    Returns:
        A function to call with the size of each piece, in bytes.
    """
    done = 0
    whole = f" of {total / _MB:.1f}" if total else ""

    def step(amount: int) -> None:
        nonlocal done
        done += amount
        show(f"{what}: {done / _MB:.1f}{whole} MiB")

    with changing_line() as show:
        yield step


def pieces(file: IO[bytes], what: str) -> Iterator[bytes]:
    """Yield a file in pieces of 1 MiB, from its beginning, and show the progress."""
    total = file.seek(0, 2)
    file.seek(0)
    with progress(what, total) as step:
        while piece := file.read(_MB):
            yield piece
            step(len(piece))
