"""The log of a replica, in the app's folder: pages, and following."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from transload.errors import AppNotFound, SpecError
from transload.schedulers import line_search
from transload.schedulers.api import LogPage, Stream
from transload.schedulers.local.logs import Cursor, LogReader
from transload_slurm.store import Store

_PAGE: Final = 1 << 20
_STREAMS: Final = {Stream.STDOUT: (0,), Stream.STDERR: (1,), Stream.COMBINED: (0, 1)}
_FOLLOW_S: Final = (0.05, 0.5)


class LogView:
    """The log of one replica.

    Args:
        store: the folder of the apps.
        app_id: the app.
        role: name of the role.
        k: number of the replica.
        over: tells whether the app has ended.

    Raises:
        AppNotFound: if there is no such app.
        SpecError: for an unknown role or replica.
    """

    def __init__(self, store: Store, app_id: str, role: str, k: int, over: Callable[[], bool]) -> None:
        record = store.record(app_id)
        if record is None:
            raise AppNotFound(app_id)
        roles = {each["name"]: each["num_replicas"] for each in record["roles"]}
        if role not in roles:
            raise SpecError(f"role {role!r}: app {app_id} has no such role; it has: {', '.join(sorted(roles))}")
        if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < roles[role]:
            raise SpecError(f"replica {k!r}: role {role!r} has the replicas 0 to {roles[role] - 1}")
        self._folder = f"{store.folder(app_id)}/logs/{role}/{k}"
        self._over = over

    def page(self, stream: Stream, cursor: str | None, max_bytes: int) -> LogPage:
        """Return the next page; never blocks on the log.

        Raises:
            SpecError: for a malformed cursor.
        """
        place = Cursor.of(cursor)
        over = self._over()  # asked before the log is read: nothing is written after an end
        reader = LogReader(self._folder, _STREAMS[stream], False)
        try:
            piece = reader.read(place, max(1, max_bytes), over)
        finally:
            reader.close()
        found = [line for text in piece.texts for line in io.StringIO(text, newline="\n")]
        return LogPage(found, place.text(), piece.complete, piece.dropped)

    def iterate(
        self, stream: Stream, regex: str | None, since: datetime | None, until: datetime | None, tail: bool
    ) -> Iterator[str]:
        """Return an iterator over lines.

        Args:
            stream: which output.
            regex: only lines in which it is found.
            since: only what was written from this time on.
            until: only what was written before this time.
            tail: follow until the app has ended.

        Raises:
            SpecError: for a bad regex.
        """
        wanted = line_search(regex)
        reader = LogReader(self._folder, _STREAMS[stream], False)
        texts = self._follow(reader, _seconds(since), _seconds(until), tail)
        lines = (line for text in texts for line in io.StringIO(text, newline="\n"))
        return lines if regex is None else filter(wanted, lines)

    def _follow(self, reader: LogReader, since: float | None, until: float | None, tail: bool) -> Iterator[str]:
        pause = _FOLLOW_S[0]
        try:
            cursor = Cursor() if since is None else reader.since(since)
            while True:
                late = until is not None and time.time() >= until
                over = self._over()
                piece = reader.read(cursor, _PAGE, over, None if until is None else reader.until(until))
                yield from piece.texts
                if piece.texts:
                    pause = _FOLLOW_S[0]
                elif piece.complete or not tail or late:
                    return
                else:
                    left = pause if until is None else max(0.0, min(pause, until - time.time()))
                    time.sleep(left)
                    pause = min(pause * 1.5, _FOLLOW_S[1])
        finally:
            reader.close()


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
