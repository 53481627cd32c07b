"""Read whole lines of replicas' logs from a cursor, in constant memory, while the logs grow.

A replica's streams are plain files that only grow at their end. A size limit makes holes at their
beginning. The index (see ``transload.keeper.logindex``) says how long each stream was at which time.
Order and time of lines come from that alone.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from typing import Final

from transload.errors import SchedulerUnavailable, SpecError
from transload.keeper import layout
from transload.keeper.logindex import ENTRY, STREAMS
from transload.schedulers.api import LogPage, LogQuery, Stream

__all__ = ["read_log"]


LONGEST_LINE: Final = 16 << 20
"""Bytes of a line. One that is longer comes in pieces."""

_FEW: Final = ENTRY.size * 256
_BACK: Final = 1 << 16
_LONGEST_STATE: Final = 4096
_MISSING: Final = -1
_REPLACED: Final = -2
_FARTHEST: Final = 32 << 20
"""Bytes that are searched for the beginnings of lines, since holes may have any size."""
_MOST_MARKS: Final = 4 << 20


def read_log(folder: str, query: LogQuery, ended: bool, *, limited: bool = False) -> LogPage:
    """Return the next page of a replica's log, without ever blocking.

    Lines of other times are skipped by the index.

    Args:
        folder: that of the replica.
        query: what is wanted.
        ended: nothing will be written any more, as was found out *before* this call. So the last
            line may lack its newline.
        limited: the log has a size limit, so that there may be holes.

    Raises:
        SpecError: for a malformed cursor.
    """
    cursor = query.cursor
    if cursor is not None and not (cursor[:1] == "@" and cursor[1:].isdecimal()):
        raise SpecError(f"cursor={cursor!r}: must be a cursor from an earlier page")
    number = (Stream.STDOUT, Stream.STDERR).index(query.stream)
    page = LogPage([], cursor or "@0", ended, left=0)
    with contextlib.ExitStack() as files:
        log, index = (_open(f"{folder}/{name}", files) for name in (STREAMS[number], "index"))
        if log == _MISSING:
            page.missing = f"{folder}/{STREAMS[number]}"
        if log == _REPLACED and cursor is None:
            page.lines.append(
                f"transload: {STREAMS[number]} of this replica is not a regular file: it is not "
                "shown\n"
            )
        if log < 0:
            return page
        size = os.fstat(log).st_size
        at = int(page.cursor[1:])
        if at > size:  # cut off by a size limit where files cannot have holes
            at = 0
        if cursor is None and query.last is not None:
            at = _lines_back(log, _hole_end(log) if limited else 0, size, query.last)
        elif cursor is None and query.since is not None:
            at = _line_start(log, min(size, _size_at(index, number, query.since)))
        limit = None
        if query.until is not None and (
            _entry_after(index, query.until) < _count(index)
            or (size and os.fstat(log).st_mtime >= query.until)
        ):
            limit = min(size, _size_at(index, number, query.until))
        end = size
        is_final = ended
        if limit is not None:
            end = limit
            is_final = False
        at, budget = _read(
            page, log, index, number, at, end, max(1, query.max_bytes), is_final, limited
        )
        page.cursor = f"@{at}"
        page.left = 0 if budget > 0 else max(0, end - at)
        if not ended and budget > 0 and limit is None:
            page.unfinished = _unfinished(log, at, size)
        # up to a limit in time, the rest of a line that was not finished by then does not count
        page.complete = ended and budget > 0 and (at >= end or limit is not None)
    return page


def _unfinished(fd: int, start: int, end: int) -> str:
    """Return the end of a line that has no newline yet, at most `_LONGEST_STATE` bytes of it."""
    data = os.pread(fd, min(end - start, _LONGEST_STATE), max(start, end - _LONGEST_STATE))
    return data.decode("utf-8", "replace").rpartition("\n")[2]


def _open(path: str, files: contextlib.ExitStack) -> int:
    """Return a descriptor for as long as ``files`` is open.

    Returns:
        The descriptor. Below 0 there is no such file, or a job replaced it.
    """
    try:
        fd = layout.open_own(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    except layout.Replaced:
        return _REPLACED
    except OSError as exc:
        raise SchedulerUnavailable(f"cannot read {path}: {exc.strerror}") from exc
    files.callback(os.close, fd)
    return fd


# -------------------------------------------------------------------------------------------------------------
# reading


def _read(
    page: LogPage,
    fd: int,
    index: int,
    number: int,
    at: int,
    end: int,
    budget: int,
    ended: bool,
    limited: bool,
) -> tuple[int, int]:
    """Add whole lines from ``at`` to ``end`` to a page.

    Returns:
        Where the page ends, and the remaining budget.
    """
    while budget > 0 and at < end:
        data, at = _block(fd, at, end, budget, page, limited)
        cut = _cut(data, at + len(data) >= end, ended)
        if cut == 0:
            if not data or at + len(data) >= end or len(data) >= LONGEST_LINE:
                break
            if page.lines:
                return at, 0  # what is left of the budget is shorter than the next line
            budget = min(max(budget, 2 * len(data)), LONGEST_LINE)  # a line longer than the budget
            continue
        _stamp(page, data, cut, at, _marks(index, number, at, at + cut), os.fstat(fd).st_mtime)
        page.lines.extend(io.StringIO(data[:cut].decode("utf-8", "replace"), newline="\n"))
        at += cut
        budget -= cut
    return at, budget


def _cut(data: bytes, at_end: bool, ended: bool) -> int:
    """Return how much of a block is whole lines, or may be returned all the same."""
    if at_end and ended:
        return len(data)
    cut = data.rfind(b"\n") + 1
    if at_end:
        # what a progress bar has drawn so far is a piece of its own, but a last \r may be half
        # of \r\n
        cut = max(cut, data.rfind(b"\r", 0, -1) + 1)
    if cut == 0 and len(data) >= LONGEST_LINE:
        cut = len(data)
        for back in (1, 2, 3):  # not in the middle of a character
            if data[-back] & 0xC0 == 0xC0:
                return cut - back
    return cut


def _block(
    fd: int, start: int, end: int, budget: int, page: LogPage, limited: bool
) -> tuple[bytes, int]:
    """Read a block, and skip what a size limit has removed. Return it and where it begins."""
    while True:
        data = os.pread(fd, min(budget, end - start), start)
        hole = _hole_end(fd) if limited else 0
        if hole <= start or start >= end:
            return data, start
        # looked at after reading, so that a hole made in between is noticed. The line at its edge
        # has lost its beginning.
        after = _after_newline(fd, hole, end)
        page.dropped += after - start
        start = after


# -------------------------------------------------------------------------------------------------------------
# by time


def _count(index: int) -> int:
    return 0 if index < 0 else os.fstat(index).st_size // ENTRY.size


def _first(index: int, is_after: Callable[..., bool]) -> int:
    """Return the number of the first index entry, all entries after which are so, too."""
    low = 0
    high = _count(index)
    while low < high:
        middle = (low + high) // 2
        if is_after(*ENTRY.unpack(os.pread(index, ENTRY.size, middle * ENTRY.size))):
            high = middle
        else:
            low = middle + 1
    return low


def _entry_after(index: int, moment: float) -> int:
    """Return the number of the first index entry of a time or later."""
    return _first(index, lambda time, *sizes: time >= moment)


def _size_at(index: int, number: int, moment: float) -> int:
    """Return how long a stream was when it was last looked at before a time."""
    at = _entry_after(index, moment)
    if at == 0:
        return 0
    size: int = ENTRY.unpack(os.pread(index, ENTRY.size, (at - 1) * ENTRY.size))[1 + number]
    return size


def _marks(index: int, number: int, start: int, end: int) -> list[tuple[int, float]]:
    """Return how long a stream was at which time, as far as the index reaches.

    The lengths are from ``start`` to ``end``.
    """
    at = _first(index, lambda time, *sizes: sizes[number] > start) * ENTRY.size
    found: list[tuple[int, float]] = []
    last = at + _MOST_MARKS
    while index >= 0 and at < last:
        data = os.pread(index, _FEW, at)
        for time, *sizes in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size]):
            if not found or sizes[number] > found[-1][0]:
                found.append((sizes[number], time))
            if sizes[number] >= end:
                return found
        if len(data) < _FEW:
            break
        at += _FEW
    return found


def _stamp(
    page: LogPage, data: bytes, cut: int, start: int, marks: list[tuple[int, float]], latest: float
) -> None:
    """Note when the lines in ``data[:cut]``, which begins at ``start``, were whole.

    The time is ``latest`` if no mark gives it.
    """
    index = len(page.lines)
    at = 0
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


# ----------------------------------------------------------------------------------------------------------
# from there


def _lines_back(fd: int, first: int, end: int, count: int) -> int:
    """Return the beginning of the last ``count`` whole lines before ``end``.

    What lies before them is not read.
    """
    at = end
    wanted = count + 1  # the newline before the first of them, and one for each
    first = max(first, end - _FARTHEST)
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


def _line_start(fd: int, offset: int) -> int:
    """Return the beginning of the line that an offset lies in."""
    end = offset
    first = max(0, offset - LONGEST_LINE)
    while end > first:
        start = max(first, end - _BACK)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return first


def _hole_end(fd: int) -> int:
    """Return where the data of a file begin."""
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except OSError:
        return 0


def _after_newline(fd: int, start: int, end: int) -> int:
    """Return the offset behind the first newline at or after ``start``."""
    last = min(end, start + LONGEST_LINE)
    while start < last:
        data = os.pread(fd, min(_BACK, end - start), start)
        found = data.find(b"\n")
        if found >= 0:
            return start + found + 1
        if not data:
            break
        start += len(data)
    return start
