"""Long work shows itself: on a terminal by a line that changes, in a log by a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Final, Protocol


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
ON_SCREEN_S, IN_LOG_S = 0.2, 10.0
_MB: Final = 1 << 20


@contextmanager
def changing_line(*, rare: bool = False) -> Iterator[Callable[[str], None]]:
    """Show one text that changes; what comes too soon after another is left out.

    Args:
        rare: changes are rare: a terminal shows each, and the last one stays, in a log too.

    Returns:
        A function to be told of each change.
    """
    over = screen is not None and screen.shows_status
    pause = (0.0 if rare else ON_SCREEN_S) if over else IN_LOG_S
    due, last, shown = time.monotonic() + (SILENT_S if over and not rare else pause), "", ""

    def show(text: str, note: bool = False) -> None:
        nonlocal due, last, shown
        last = text
        if not note and time.monotonic() < due:
            return
        due, shown = time.monotonic() + pause, text
        if screen is None:
            import logging  # most programs that get here have it

            logging.getLogger("transload").info(text)
        elif over and not note:
            screen.set_status(f"transload: {text}")
        else:
            screen.note(text)

    try:
        yield show
    finally:
        if over and screen is not None:
            screen.end()
        if rare and last and (over or last != shown):
            show(last, note=True)


@contextmanager
def progress(what: str, total: int = 0) -> Iterator[Callable[[int], None]]:
    """Show how far a copy, an upload or a download has come.

    Args:
        what: what goes on, such as ``pushing registry/code``.
        total: bytes in all; 0 if that is not known.

    Returns:
        A function to be told of each piece, in bytes.
    """
    done = 0

    def step(amount: int) -> None:
        nonlocal done
        done += amount
        show(f"{what}: {done / _MB:.1f}" + (f" of {total / _MB:.1f}" if total else "") + " MiB")

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
