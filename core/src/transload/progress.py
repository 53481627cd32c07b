"""Long work shows itself: on a terminal by a line that changes, in a log by a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

screen: TextIO | None = None
"""The terminal whose last line may be written over; the command line sets it, except with ``--json``."""
SILENT_S: Final = 1.0
"""What takes less is not shown."""
ON_SCREEN_S, IN_LOG_S = 0.2, 10.0
_MB: Final = 1 << 20


@contextmanager
def progress(what: str, total: int = 0) -> Iterator[Callable[[int], None]]:
    """Show how far a copy, an upload or a download has come.

    Args:
        what: what goes on, such as ``pushing registry/code``.
        total: bytes in all; 0 if that is not known.

    Returns:
        A function to be told of each piece, in bytes.
    """
    done, due, shown = 0, time.monotonic() + (SILENT_S if screen else IN_LOG_S), False

    def step(amount: int) -> None:
        nonlocal done, due, shown
        done += amount
        now = time.monotonic()
        if now < due:
            return
        due = now + (ON_SCREEN_S if screen else IN_LOG_S)
        share = f" of {total / _MB:.1f}" if total else ""
        text = f"{what}: {done / _MB:.1f}{share} MiB"
        if screen is None:
            import logging  # most programs that get here have it

            logging.getLogger("transload").info(text)
            return
        screen.write(f"\r\x1b[Ktransload: {text}")
        screen.flush()
        shown = True

    try:
        yield step
    finally:
        if shown and screen is not None:
            screen.write("\r\x1b[K")
            screen.flush()
