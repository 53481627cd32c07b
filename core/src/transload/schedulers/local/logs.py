"""Reading replicas' logs: whole lines, from a cursor, in constant memory, while they grow.

A replica's streams are plain files that only grow at their end (a size limit makes holes at their beginning). The index
(see ``supervisor/logindex.py``) says how long each was at which time: that is all that order and time are made of.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable
from typing import Final

from transload.errors import SpecError
from transload.schedulers.api import LogPage, Stream
from transload.schedulers.local.supervisor.logindex import ENTRY, STREAMS

LONGEST_LINE: Final = 16 << 20
"""Bytes; a line that is longer comes in pieces."""

_STREAMS: Final = {Stream.STDOUT: (0,), Stream.STDERR: (1,), Stream.COMBINED: (0, 1)}

_INDEX_BLOCK: Final = ENTRY.size * 4096
_FEW: Final = ENTRY.size * 256
_BACK: Final = 1 << 16


Marks = list[tuple[int, float]]
"""How long a stream was at which time, ascending: ``(bytes, seconds since the epoch)``."""


def read_log(
    folder: str,
    stream: Stream,
    cursor: str | None,
    max_bytes: int,
    ended: bool,
    *,
    limited: bool = False,
    since: float | None = None,
    until: float | None = None,
    last: int | None = None,
) -> LogPage:
    """Return the next page of a replica's log; never blocks. Lines of other times are skipped by the index.

    Args:
        folder: the replica's log folder.
        stream: which output.
        cursor: where to go on; None: at the beginning of what is wanted.
        max_bytes: about how much to read.
        ended: nothing will be written any more (found out *before* this call): the last line may lack its newline.
        limited: a size limit is set: there may be holes.
        since: only lines from this time on are wanted, seconds since the epoch.
        until: only lines before this time are wanted.
        last: only so many last lines are wanted.

    Raises:
        SpecError: for a malformed cursor.
    """
    reader = _Reader(folder, _STREAMS[Stream(stream)], limited, cursor)
    try:
        if cursor is None and last is not None:
            reader.seek_last(last)
        elif cursor is None and since is not None:
            reader.seek(since)
        return reader.read(max(1, max_bytes), ended, None if until is None else reader.sizes_at(until))
    finally:
        reader.close()


class _Reader:
    """Reads one replica's streams, from how far each was read, and the index."""

    def __init__(self, folder: str, streams: tuple[int, ...], limited: bool, cursor: str | None) -> None:
        self._folder = folder
        self._streams = streams
        self._limited = limited
        self._fds: dict[str, int] = {}
        self._at, self._index = [0, 0], 0
        if cursor is not None:
            try:
                data = json.loads(cursor)
                values = [data[key] for key in ("o", "e", "i")]
                if data["v"] != 1 or any(type(value) is not int or value < 0 for value in values):
                    raise ValueError
            except (ValueError, KeyError, TypeError) as exc:
                raise SpecError(f"cursor={cursor!r}: must be a cursor from an earlier page") from exc
            self._at, self._index = values[:2], values[2]

    def close(self) -> None:
        """Close the files."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _open(self, name: str) -> int | None:
        fd = self._fds.get(name)
        if fd is None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                fd = self._fds[name] = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        return fd

    def _size(self, stream: int) -> int:
        fd = self._open(STREAMS[stream])
        return 0 if fd is None else os.fstat(fd).st_size

    # -------------------------------------------------------------------------------------------------------- reading

    def read(self, budget: int, ended: bool, limits: tuple[int, int] | None) -> LogPage:
        """Return the next page, up to offsets in the two streams if these are given."""
        page = LogPage([], "", False)
        ends = [self._size(0), self._size(1)]
        if limits is not None:
            ends = [min(end, limit) for end, limit in zip(ends, limits, strict=True)]
        if len(self._streams) == 2:
            budget = self._read_indexed(budget, ends, page)
        for stream in self._streams:
            if budget > 0:
                last = ended and limits is None
                budget = self._read_stream(stream, ends[stream], budget, last, page)
        # up to a limit in time, the rest of a line that was not finished by then does not count
        read_all = all(self._at[s] >= ends[s] or limits is not None for s in self._streams)
        page.complete = ended and budget > 0 and read_all
        at = {"v": 1, "o": self._at[0], "e": self._at[1], "i": self._index}
        page.cursor = json.dumps(at, separators=(",", ":"))
        return page

    def _read_indexed(self, budget: int, ends: list[int], page: LogPage) -> int:
        """Read both streams in the order of the index, as far as it reaches."""
        fd = self._open("index")
        while fd is not None and budget > 0:
            data = os.pread(fd, _INDEX_BLOCK, self._index)
            data = data[: len(data) - len(data) % ENTRY.size]
            if not data:
                break
            for stream, marks in _segments(data):
                end = min(marks[-1][0], ends[stream])
                budget = self._read_stream(stream, end, budget, False, page, marks)
                if budget <= 0:
                    return budget  # the index stays where it is: what was read already is passed over next time
            self._index += len(data)
        return budget

    def _read_stream(
        self, stream: int, end: int, budget: int, ended: bool, page: LogPage, marks: Marks | None = None
    ) -> int:
        """Read whole lines of one stream up to ``end``; return what is left of the budget."""
        fd = self._open(STREAMS[stream])
        if fd is None:
            return budget
        if self._at[stream] > os.fstat(fd).st_size:  # cut off by a size limit where files cannot have holes
            self._at[stream] = 0
        while budget > 0 and self._at[stream] < end:
            data, start = self._block(fd, self._at[stream], end, budget, page)
            if not data:
                self._at[stream] = start
                break
            if start > self._at[stream]:
                self._at[stream] = start
            cut = self._cut(data, start + len(data) >= end, ended)
            if cut == 0:
                if start + len(data) < end and len(data) < LONGEST_LINE:
                    if page.lines:
                        return 0  # what is left of the budget is shorter than the next line
                    budget = min(max(budget, 2 * len(data)), LONGEST_LINE)  # a line longer than the budget
                    continue
                break
            known = self._marks(stream, start, start + cut) if marks is None else marks
            _stamp(page, data, cut, start, known, os.fstat(fd).st_mtime)
            page.lines.extend(io.StringIO(data[:cut].decode("utf-8", "replace"), newline="\n"))
            self._at[stream] = start + cut
            budget -= cut
        return budget

    @staticmethod
    def _cut(data: bytes, at_end: bool, ended: bool) -> int:
        """Return how much of a block is whole lines, or may be handed out all the same."""
        if at_end and ended:
            return len(data)
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(data) >= LONGEST_LINE:
            cut = len(data)
            for back in (1, 2, 3):  # not in the middle of a character
                if data[-back] & 0xC0 == 0xC0:
                    return cut - back
        return cut

    def _block(self, fd: int, start: int, end: int, budget: int, page: LogPage) -> tuple[bytes, int]:
        """Read a block; jump over what a size limit has taken. Returns it and where it begins."""
        if not self._limited:
            return os.pread(fd, min(budget, end - start), start), start
        while True:
            data = os.pread(fd, min(budget, end - start), start)
            hole = _hole_end(fd)
            if hole <= start or start >= end:
                return data, start
            # looked at after reading: a hole made in between is noticed. The line at its edge has lost its beginning.
            after = _after_newline(fd, hole, end)
            page.dropped += after - start
            start = after

    # -------------------------------------------------------------------------------------------------------- by time

    def seek(self, moment: float) -> None:
        """Go to the first lines that were seen at or after a time (seconds since the epoch)."""
        fd = self._open("index")
        count = 0 if fd is None else os.fstat(fd).st_size // ENTRY.size
        at = self._find(moment, count)
        if fd is not None and at > 0:
            _, *sizes = ENTRY.unpack(os.pread(fd, ENTRY.size, (at - 1) * ENTRY.size))
            self._at = [self._line_start(stream, sizes[stream]) for stream in (0, 1)]
            self._index = at * ENTRY.size

    def sizes_at(self, moment: float) -> tuple[int, int] | None:
        """Return the offsets that the streams had at a time; None if all that is there is older."""
        fd = self._open("index")
        count = 0 if fd is None else os.fstat(fd).st_size // ENTRY.size
        at = self._find(moment, count)
        if at == count and not self._written_after(moment):
            return None
        if fd is None or at == 0:
            return 0, 0
        _, *sizes = ENTRY.unpack(os.pread(fd, ENTRY.size, (at - 1) * ENTRY.size))
        return sizes[0], sizes[1]

    def _written_after(self, moment: float) -> bool:
        fds = [self._open(STREAMS[stream]) for stream in self._streams]
        return any(fd is not None and os.fstat(fd).st_size and os.fstat(fd).st_mtime >= moment for fd in fds)

    def _find(self, moment: float, count: int) -> int:
        """Return the number of index entries before a time."""
        return self._count_before(count, lambda time, *sizes: time < moment)

    def _count_before(self, count: int, is_before: Callable[..., bool]) -> int:
        fd = self._fds.get("index", -1)
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if is_before(*ENTRY.unpack(os.pread(fd, ENTRY.size, middle * ENTRY.size))):
                low = middle + 1
            else:
                high = middle
        return low

    def _entry_after(self, stream: int, offset: int) -> int:
        """Return the number of the first index entry in which a stream was longer than ``offset``."""
        fd = self._open("index")
        count = 0 if fd is None else os.fstat(fd).st_size // ENTRY.size
        return self._count_before(count, lambda time, *sizes: sizes[stream] <= offset)

    def _marks(self, stream: int, start: int, end: int) -> Marks:
        """Return when a stream grew from ``start`` to ``end``, as far as the index reaches."""
        at = self._entry_after(stream, start) * ENTRY.size
        found: Marks = []
        fd = self._open("index")
        while fd is not None:
            data = os.pread(fd, _FEW, at)
            for time, *sizes in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size]):
                if not found or sizes[stream] > found[-1][0]:
                    found.append((sizes[stream], time))
                if sizes[stream] >= end:
                    return found
            if len(data) < _FEW:
                break
            at += _FEW
        return found

    # ------------------------------------------------------------------------------------------------- from the end

    def seek_last(self, count: int) -> None:
        """Go before the last ``count`` whole lines of each stream: what lies before them is not read."""
        self._at = [self._lines_back(stream, count) for stream in (0, 1)]
        self._index = min(self._entry_after(stream, self._at[stream]) for stream in self._streams) * ENTRY.size

    def _lines_back(self, stream: int, count: int) -> int:
        fd = self._open(STREAMS[stream])
        if fd is None or stream not in self._streams:
            return 0
        first = _hole_end(fd) if self._limited else 0
        at, wanted = os.fstat(fd).st_size, count + 1  # the newline before the first of them, and one for each
        while at > first:
            start = max(first, at - _BACK)
            data = os.pread(fd, at - start, start)
            found = data.count(b"\n")
            if found >= wanted:
                position = len(data)
                for _ in range(wanted):
                    position = data.rfind(b"\n", 0, position)
                return start + position + 1
            wanted -= found
            at = start
        return first

    def _line_start(self, stream: int, offset: int) -> int:
        """Return the beginning of the line that an offset lies in."""
        fd = self._open(STREAMS[stream])
        if fd is None:
            return 0
        end = min(offset, os.fstat(fd).st_size)
        while end > 0:
            start = max(0, end - _BACK)
            found = os.pread(fd, end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0


def _segments(data: bytes) -> list[tuple[int, Marks]]:
    """Return the streams in the order in which they grew, each with its marks until the other one grows."""
    found: list[tuple[int, Marks]] = []
    last = [-1, -1]
    for time, *sizes in ENTRY.iter_unpack(data):
        for stream in (0, 1):
            if sizes[stream] != last[stream]:
                last[stream] = sizes[stream]
                if not found or found[-1][0] != stream:
                    found.append((stream, []))
                found[-1][1].append((sizes[stream], time))
    return found


def _stamp(page: LogPage, data: bytes, cut: int, start: int, marks: Marks, latest: float) -> None:
    """Note when the lines in ``data[:cut]``, which begins at ``start``, were whole; ``latest`` if no mark tells."""
    index, at = len(page.lines), 0
    for size, time in [*marks, (start + cut, latest)]:
        if size - start <= at:
            continue
        if page.stamps and page.stamps[-1][0] == index:
            page.stamps.pop()
        if not page.stamps or page.stamps[-1][1] != time:
            page.stamps.append((index, time))
        if size - start >= cut:
            return
        index += data.count(b"\n", at, size - start)
        at = size - start


def _hole_end(fd: int) -> int:
    """Return where the data of a file begin."""
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except OSError:
        return 0


def _after_newline(fd: int, start: int, end: int) -> int:
    """Return the offset behind the first newline at or after ``start``."""
    while start < end:
        data = os.pread(fd, min(_BACK, end - start), start)
        found = data.find(b"\n")
        if found >= 0:
            return start + found + 1
        if not data:
            break
        start += len(data)
    return end
