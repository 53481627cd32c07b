"""Long work shows itself: on a terminal by a line that changes, in a log by a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Final, Protocol

__all__ = ["changing_line", "pieces", "progress"]


class StatusLine(Protocol):
    """Where progress is shown: a terminal's last line, or a log."""

    shows_status: bool

    def set_status(self, text: str) -> None:
        """Replace the line that changes."""

    def note(self, text: str) -> None:
        """Write a line that stays."""

    def end(self) -> None:
        """Remove the line that changes."""


screen: StatusLine | None = None
"""Where the command line shows progress, except with ``--json``; None, as in hosts: the logger
``transload``."""
SILENT_S: Final = 1.0
"""On a terminal, what takes less is not shown."""
ON_SCREEN_S: Final = 0.2
"""Seconds between two texts of a terminal's changing line."""
IN_LOG_S: Final = 10.0
"""Seconds between two lines of a log."""
_MB: Final = 1 << 20


class _ChangingLine:
    """A text that changes, on a terminal's last line or as lines of a log.

    Args:
        rare: changes are rare: a terminal shows each of them, and the last text stays.
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
        """Return the seconds that pass at least between two texts that are shown."""
        if not self._on_terminal:
            return IN_LOG_S
        return 0.0 if self._rare else ON_SCREEN_S

    def show(self, text: str) -> None:
        """Show a text, unless another one was shown a moment ago."""
        self._last = text
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + self._pause()
        self._shown = text
        if screen is not None and self._on_terminal:
            screen.set_status(f"transload: {text}")
        else:
            _write_line(text)

    def end(self) -> None:
        """Remove the line; if changes are rare, write the last text so that it stays."""
        if screen is not None and self._on_terminal:
            screen.end()
        is_missing = self._on_terminal or self._last != self._shown
        if self._rare and self._last and is_missing:
            _write_line(self._last)


def _write_line(text: str) -> None:
    if screen is not None:
        screen.note(text)
        return
    import logging  # most programs that get here have it

    logging.getLogger("transload").info(text)


@contextmanager
def changing_line(*, rare: bool = False) -> Iterator[Callable[[str], None]]:
    """Show one text that changes; what comes too soon after another is left out.

    Args:
        rare: changes are rare: a terminal shows each, and the last one stays, in a log too.

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
    """Show how far a copy, an upload or a download has come.

    Args:
        what: what goes on, such as ``pushing registry/code``.
        total: bytes in all; 0 if that is not known.

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
    """Yield a file in pieces of 1 MiB, from its beginning, and show how far that has come."""
    total = file.seek(0, 2)
    file.seek(0)
    with progress(what, total) as step:
        while piece := file.read(_MB):
            yield piece
            step(len(piece))
