"""Following a log: blocks of whole lines as they come, up to the app's end or a point in time."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Final

from transload.schedulers.local.logs import Cursor, LogReader
from transload.schedulers.local.notify import SAFETY_S, LogWatch
from transload.schedulers.local.store import Store

PAGE: Final = 1 << 20
"""Bytes that are read at once."""


def blocks(
    store: Store, app_id: str, reader: LogReader, since: float | None, until: float | None, tail: bool
) -> Iterator[str]:
    """Yield a log as blocks of whole lines.

    Args:
        store: where the app is.
        app_id: the app.
        reader: reads the replica's streams; closed at the end.
        since: seconds since the epoch; None: from the beginning.
        until: seconds since the epoch; None: to the end.
        tail: go on until the app has ended.
    """
    watch: LogWatch | None = None
    try:
        cursor = Cursor() if since is None else reader.since(since)
        while True:
            over = until is not None and time.time() >= until
            ended = store.has_ended(app_id)
            limits = None if until is None else reader.until(until)
            piece = reader.read(cursor, PAGE, ended, limits)
            if piece.dropped:
                yield f"[{piece.dropped} bytes were dropped here: max_log_size]\n"
            yield from piece.texts
            if piece.texts:
                if watch is not None:
                    watch.grew()
                continue
            if piece.complete or not tail or over:
                return
            if watch is None:  # first listen, then read once more: nothing falls in between
                watch = LogWatch(store.local, app_id, reader.folder)
                continue
            watch.wait(SAFETY_S if until is None else max(0.0, min(SAFETY_S, until - time.time())))
    finally:
        reader.close()
        if watch is not None:
            watch.close()


def lines(texts: Iterator[str]) -> Iterator[str]:
    """Yield the lines of blocks of whole lines; only a newline ends one."""
    for text in texts:
        yield from io.StringIO(text, newline="\n")
