"""Read logs page by page, filtered, merged, or only their last lines."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import merge
from itertools import count, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from transload.errors import (
    AppNotFound,
    SchedulerUnavailable,
    SpecError,
    TransloadError,
    UnsupportedFeature,
)
from transload.schedulers.api import LogPage, LogQuery, Stream
from transload.schedulers.follower import read_logs
from transload.schedulers.patience import backoff, patience_left, patiently
from transload.specs import AppState
from transload.specs.checks import LARGEST_INT, check_int

if TYPE_CHECKING:
    from transload.schedulers.api import SchedulerBase
    from transload.specs import AppStatus

__all__ = ["PAGE", "last_lines", "silent_for"]


PAGE: Final = 1 << 18
"""Bytes of one page."""

PAGES_PER_TURN: Final = 16
"""The number of pages of one log that are read before other logs have their turn."""

_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.05
_MOST_LOOKED_AT: Final = 16


class LogReader:
    """One stream of one replica, read page by page.

    Args:
        scheduler: the scheduler of the job.
        app_id: the job.
        query: the wanted part of the log. Its ``max_bytes`` is not used.

    Attributes:
        complete: whether the replica has ended and everything was read. Setting it stops reading.
        moved: whether the last page was not empty.

    Raises:
        UnsupportedFeature: if the scheduler does not have that output separately, or does not keep
            times.
    """

    def __init__(self, scheduler: SchedulerBase, app_id: str, query: LogQuery) -> None:
        self.scheduler = scheduler
        self.app_id = app_id
        self.role = query.role
        self.replica = query.replica
        self.stream = stream = query.stream
        self.cursor = query.cursor
        self.complete = False
        self.moved = False
        self._query = query
        offered = scheduler.streams
        self._merged = stream is Stream.COMBINED and stream not in offered
        if stream not in offered and not (self._merged and len(offered) == 2):
            names = ", ".join(sorted(each.value for each in offered))
            message = f"stream {stream.value}: scheduler {scheduler.name!r} does not tell it apart (it has: {names})"
            raise UnsupportedFeature(message, "stream")
        streams = _BOTH if self._merged else (stream,)
        # bytes to read of those that existed when reading began, None if unknown
        self._left: dict[Stream, int | None] = dict.fromkeys(streams)
        by_time = query.since is not None or query.until is not None
        if by_time and not scheduler.since_until:
            raise UnsupportedFeature(
                f"since, until: scheduler {scheduler.name!r} keeps no times of lines", "since"
            )

    @property
    def caught_up(self) -> bool:
        """Return whether all that existed at the start was read, if the scheduler knows it."""
        return all(left is not None and left <= 0 for left in self._left.values())

    def read(self, max_bytes: int = PAGE) -> LogPage:
        """Return the next page without waiting, and move the cursor behind it.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for an unknown role or replica.
            SchedulerUnavailable: if the scheduler cannot be asked.
        """
        if self._merged:
            page = self._read_both(max_bytes)
        else:
            page = self._page(self.stream, self.cursor, max_bytes)
            self._count(self.stream, page, page.lines, page.lines)
        self.moved = bool(page.lines) or (page.cursor != self.cursor and self.cursor is not None)
        self.cursor = page.cursor
        self.complete = page.complete
        return page

    def pages(self, most: int | None = None) -> Iterator[LogPage]:
        """Return the pages that exist now, at most ``most``, with the errors of `read`.

        Without a limit, the pages end where the log ended when reading began. Otherwise reading
        might never end, if a program writes as fast as its log is read.
        """
        turns = count() if most is None else range(most)
        for _ in turns:
            if self.complete:
                break
            yield self.read()
            if not self.moved or (most is None and self.caught_up):
                break

    def last_page(self, number: int) -> LogPage:
        """Return a page with the last lines that exist now, and move the cursor behind it.

        The errors are those of `read`.
        """
        self._query = replace(self._query, last=number)  # the scheduler may skip the others
        kept: deque[str] = deque(maxlen=number)
        page = LogPage([], self.cursor or "", self.complete)
        for page in self.pages():
            kept.extend(page.lines)
        return replace(page, lines=list(kept), stamps=[])

    def _page(self, stream: Stream, cursor: str | None, max_bytes: int) -> LogPage:
        query = replace(self._query, stream=stream, cursor=cursor, max_bytes=max_bytes)
        return self.scheduler.log_read(self.app_id, query)

    def _count(
        self, stream: Stream, page: LogPage, new: Sequence[str], taken: Sequence[str]
    ) -> None:
        """Count the lines that were taken from a page.

        Args:
            stream: the stream of the page.
            page: the page.
            new: its lines that were not taken before.
            taken: the new lines that were taken now, from the first one on.
        """
        left = self._left[stream]
        if page.left == 0 and len(taken) == len(new):
            self._left[stream] = 0
            return
        if left is None:
            if page.left is None:
                return
            left = page.left + _size(new)
        self._left[stream] = left - _size(taken)

    def _read_both(self, max_bytes: int) -> LogPage:
        """Return a page of both streams in the order of their stamps.

        The cursor has the places in both streams.
        """
        places = self._places()
        pages = []
        for stream, place in zip(_BOTH, places, strict=True):
            pages.append(self._page(stream, place.cursor, max_bytes))
        is_part_taken = any(place.taken for place in places)
        if not is_part_taken and not all(page.lines for page in pages):
            return self._only_one(pages)
        rows = []
        limit = float("inf")
        for number, page in enumerate(pages):
            stamps = times(page)
            if _is_full(page, max_bytes):
                # more may follow, so later lines of the other stream wait for it
                limit = min(limit, stamps[-1])
            lines = list(zip(stamps, page.lines, strict=True))
            new = lines[places[number].taken :]
            rows.append([_Row(at, line, number) for at, line in new])
        in_order = merge(*rows, key=lambda row: row.at)
        found = list(takewhile(lambda row: row.at <= limit, in_order))
        next_places = []
        for number, (page, place) in enumerate(zip(pages, places, strict=True)):
            now = [row.line for row in found if row.stream == number]
            self._count(_BOTH[number], page, page.lines[place.taken :], now)
            taken = place.taken + len(now)
            if taken == len(page.lines):
                next_places.append(_Place(page.cursor))
            else:
                next_places.append(_Place(place.cursor, taken))
        is_whole = not any(place.taken for place in next_places)
        return LogPage(
            lines=[row.line for row in found],
            cursor=json.dumps(next_places),
            complete=is_whole and all(page.complete for page in pages),
            dropped=sum(page.dropped for page in pages) if is_whole else 0,
            stamps=[(index, row.at) for index, row in enumerate(found)],
            unfinished=pages[1].unfinished or pages[0].unfinished,
        )

    def _places(self) -> list[_Place]:
        """Return the place in each of the streams, from the cursor."""
        if not self.cursor:
            return [_Place(), _Place()]
        try:
            (out, out_taken), (err, err_taken) = json.loads(self.cursor)
        except (ValueError, TypeError) as exc:
            raise SpecError(
                f"cursor={self.cursor!r}: must be a cursor from an earlier page"
            ) from exc
        return [_Place(out, out_taken), _Place(err, err_taken)]

    def _only_one(self, pages: list[LogPage]) -> LogPage:
        """Return one page for two pages, if at most one has lines and no order is needed."""
        for stream, page in zip(_BOTH, pages, strict=True):
            self._count(stream, page, page.lines, page.lines)
        with_lines = pages[0] if pages[0].lines else pages[1]
        return LogPage(
            lines=with_lines.lines,
            cursor=json.dumps([_Place(page.cursor) for page in pages]),
            complete=all(page.complete for page in pages),
            dropped=sum(page.dropped for page in pages),
            stamps=with_lines.stamps,
            unfinished=pages[1].unfinished or pages[0].unfinished,
            missing=pages[0].missing if pages[1].missing else "",
        )


class _Place(NamedTuple):
    """A place in a stream, by the beginning of a page and the number of lines taken from it."""

    cursor: str | None = None
    taken: int = 0


class _Row(NamedTuple):
    """A line, its time in seconds since the epoch, and the number of its stream in `_BOTH`."""

    at: float
    line: str
    stream: int


_BOTH: Final = (Stream.STDOUT, Stream.STDERR)


def _is_full(page: LogPage, max_bytes: int) -> bool:
    """Tell whether more may follow the lines of a page."""
    if page.left is None:
        return sum(map(len, page.lines)) >= max_bytes
    return bool(page.lines) and page.left > 0


def _size(lines: Sequence[str]) -> int:
    """Return the number of bytes of lines in a log, never too many.

    Replacements for bytes that are not text are longer than these bytes.
    """
    text = "".join(lines)
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogateescape")) - 2 * text.count("\ufffd")


def times(page: LogPage, before: float = 0.0) -> list[float]:
    """Return the time of each line of a page, or ``before`` for lines before the first stamp."""
    found: list[float] = []
    moment = before
    for index, stamp in [*page.stamps, (len(page.lines), 0.0)]:
        found.extend([moment] * (index - len(found)))
        moment = stamp
    return found


class LineFilter:
    """Chooses the lines of a log that match a pattern and were written within a time span.

    Args:
        regex: the pattern. None means any line.
        since: the first time, in seconds since the epoch.
        until: the end of the time span, in seconds since the epoch, which is not included.

    Raises:
        SpecError: for a bad pattern.
    """

    def __init__(
        self, regex: str | None = None, since: float | None = None, until: float | None = None
    ) -> None:
        try:
            self._found = None if regex is None else re.compile(regex).search
        except re.error as exc:
            raise SpecError(f"regex={regex!r}: not a regular expression: {exc}") from exc
        self._since = float("-inf")
        if since is not None:
            self._since = since
        self._until = float("inf")
        if until is not None:
            self._until = until
        self._timed = since is not None or until is not None
        self._moment = 0.0

    def take(self, page: LogPage) -> list[str]:
        """Return the wanted lines of the next page, and a line about dropped bytes before it."""
        lines = page.lines
        if self._timed and lines:
            moments = times(page, self._moment)
            self._moment = moments[-1]
            timed = zip(lines, moments, strict=True)
            lines = [line for line, at in timed if self._since <= at < self._until]
        chosen = self.choose(lines)
        if not page.dropped:
            return chosen
        gap = f"[{page.dropped} bytes were dropped here, because the log has a size limit]\n"
        return [gap, *chosen]

    def choose(self, lines: Iterable[str]) -> list[str]:
        """Return the lines that match the pattern."""
        if self._found is None:
            return list(lines)
        return [line for line in lines if self._found(line)]


def last_lines(
    scheduler: SchedulerBase,
    app_id: str,
    role: str,
    replica: int,
    stream: Stream,
    number: int,
    *,
    since: float | None = None,
) -> Sequence[str]:
    """Return the last lines of a replica's stream like a terminal shows them, in constant memory.

    ``since`` selects lines from this time on, in seconds since the epoch. It is ignored if the
    scheduler does not keep the times of lines.

    Raises:
        AppNotFound: if there is no such job.
        SpecError: for an unknown role or replica, or a number of lines that is none.
        SchedulerUnavailable: if the scheduler cannot be asked.
    """
    check_int(number, "number of lines", 0, LARGEST_INT)
    if not scheduler.since_until:
        since = None
    chosen = LineFilter(since=since)
    kept: deque[str] = deque(maxlen=number)
    query = LogQuery(role, replica, stream, since=since, last=number)
    for page in LogReader(scheduler, app_id, query).pages():
        if since is None:
            kept.extend(map(drawn, page.lines))
        else:
            kept.extend(map(drawn, chosen.take(page)))
    return list(kept)


def silent_for(
    scheduler: SchedulerBase, app_id: str, status: AppStatus
) -> dict[tuple[str, int], float]:
    """Return for how many seconds each replica that runs has written nothing.

    Only the first 16 are looked at. One whose lines have no times is left out, and so
    is one whose last line is not finished.
    """
    if not scheduler.since_until:
        return {}
    streams = scheduler.streams
    if Stream.COMBINED in streams:
        streams = frozenset({Stream.COMBINED})
    now = time.time()
    running = [
        replica
        for role in status.roles
        for replica in role.replicas
        if replica.state is AppState.RUNNING and replica.start_time is not None
    ]
    found = {}
    for replica in running[:_MOST_LOOKED_AT]:
        last = replica.start_time or now
        pages = [
            scheduler.log_read(app_id, LogQuery(replica.role, replica.id, stream, last=1))
            for stream in streams
        ]
        for page in pages:
            last = max([last, *(time for _, time in page.stamps)])
        if not any(page.unfinished for page in pages):
            found[(replica.role, replica.id)] = max(0.0, now - last)
    return found


def tail(
    scheduler: SchedulerBase,
    app_id: str,
    role: str,
    replica: int,
    number: int,
    status: AppStatus | None = None,
    *,
    patience: float = 0.0,
) -> Sequence[str]:
    """Return the last lines of a replica, or none if they cannot be read.

    Args:
        scheduler: the scheduler of the job.
        app_id: the job.
        role: name of the role.
        replica: number of the replica.
        number: how many lines, at most.
        status: of the job. With it, only lines of the latest attempt are returned.
        patience: seconds for which a scheduler that is unreachable is asked again.
    """
    since = None
    if status is not None:
        since = status.started_again(role, replica)
    read = partial(
        last_lines, scheduler, app_id, role, replica, Stream.COMBINED, number, since=since
    )
    try:
        return patiently(read, patience)
    except TransloadError:
        return []


# -- several logs


def read_now(readers: Iterable[LogReader], sink: Callable[[LogReader, LogPage], object]) -> bool:
    """Pass on the new pages of several logs of a job, and return whether there were any.

    The logs of a job that is gone are complete. Errors of the sink are raised.

    Raises:
        SchedulerUnavailable: if the scheduler cannot be asked.
    """
    found = False
    for reader in readers:
        try:
            for page in reader.pages(PAGES_PER_TURN):
                sink(reader, page)
                found |= reader.moved
        except AppNotFound:
            reader.complete = True
    return found


def drain(
    read: Callable[[], bool],
    complete: Callable[[], bool],
    *,
    silence: float = 5.0,
    patience: float = 0.0,
) -> None:
    """Read the rest of the logs of a job that has ended.

    Args:
        read: reads what is there now, and returns whether that was anything.
        complete: tells whether all was read.
        silence: seconds without a new line after which the rest is given up.
        patience: seconds for which a scheduler that is unreachable is asked again. They are no
            silence.
    """
    pause = _FIRST_PAUSE_S
    heard = time.monotonic()
    unreachable_since: float | None = None
    while not complete():
        moved = False
        try:
            moved = read()
            unreachable_since = None
        except SchedulerUnavailable:
            heard = time.monotonic()
            unreachable_since = unreachable_since or heard
            if patience_left(patience, unreachable_since) <= 0:
                return
        if moved:
            pause = _FIRST_PAUSE_S
            heard = time.monotonic()
        elif complete() or time.monotonic() - heard >= silence:
            return
        else:
            time.sleep(pause)
            pause = backoff(pause, _LONGEST_PAUSE_S)


def follow_logs(
    readers: Sequence[LogReader],
    *,
    follow: bool = True,
    until: float | None = None,
    patience: float = 60.0,
) -> Iterator[tuple[LogReader, LogPage]]:
    """Return the pages of several logs of a job as they arrive, in order within each log.

    Args:
        readers: the logs.
        follow: go on until all replicas have ended. Otherwise stop where each log ended when its
            reading began.
        until: when to stop following, in seconds since the epoch.
        patience: the unreachable timeout while following, in seconds.

    Raises:
        SchedulerUnavailable: if the scheduler is unreachable for too long.
    """
    may_have_grown = threading.Event()
    moved = False
    failed_at = None
    growing = None

    def notify() -> bool:
        may_have_grown.set()
        return moved

    try:
        while True:
            may_have_grown.clear()
            moved = False
            try:
                for reader in readers:
                    if reader.caught_up and not follow:
                        continue
                    for page in reader.pages(PAGES_PER_TURN if follow else None):
                        moved |= reader.moved
                        yield reader, page
                failed_at = None
            except AppNotFound:
                return  # deleted meanwhile
            except SchedulerUnavailable:
                failed_at = failed_at or time.monotonic()
                if not follow or time.monotonic() - failed_at > patience:
                    raise
            if not follow or all(each.complete for each in readers):
                return
            if moved:
                continue
            if until is not None and time.time() >= until:
                return
            if growing is None:  # then read once more, so that no line is missed
                growing = read_logs(readers[0].scheduler, readers[0].app_id, notify)
            else:
                may_have_grown.wait(_seconds_until(until))
    finally:
        if growing is not None:
            growing.close()


def _seconds_until(until: float | None) -> float | None:
    """Return the seconds until a time in the form of `threading`, or None for no limit."""
    if until is None:
        return None
    return min(max(0.0, until - time.time()), threading.TIMEOUT_MAX)


def log_lines(
    scheduler: SchedulerBase,
    app_id: str,
    role: str,
    replica: int,
    *,
    stream: Stream = Stream.COMBINED,
    regex: str | None = None,
    since: float | None = None,
    until: float | None = None,
    follow: bool = False,
    patience: float = 60.0,
) -> Iterator[str]:
    """Return an iterator over the lines of one log. Arguments are checked when it is called.

    The arguments are those of `LogReader`, `LineFilter` and `follow_logs`.

    Raises:
        AppNotFound: if there is no such job.
        SpecError: for an unknown role or replica, or a bad pattern.
        UnsupportedFeature: if the scheduler cannot tell that output apart, or keeps no times.
    """
    chosen = LineFilter(regex, since, until)
    reader = LogReader(scheduler, app_id, LogQuery(role, replica, stream, since=since, until=until))
    first = reader.read()

    def lines() -> Iterator[str]:
        yield from chosen.take(first)
        pages = follow_logs([reader], follow=follow, until=until, patience=patience)
        for _, page in pages:
            yield from chosen.take(page)

    return lines()


# -- lines that a program draws over


PAUSE_S: Final = 5.0
"""Seconds between two states of one line, where each of them becomes a line of its own."""


def drawn(line: str) -> str:
    r"""Return what a terminal shows of a line in the end.

    Of ``"10%\r100%\n"`` this is ``"100%\n"``.
    """
    if "\r" not in line:
        return line
    text = line.removesuffix("\n")
    newline = line[len(text) :]
    for state in reversed(text.split("\r")):
        if state.strip():
            return state + newline
    return newline


class Redraws:
    """Turns the lines of one log, among them states that are drawn over, into lines to be shown.

    Args:
        pause: seconds between two states of one line. If it is infinite, only a line's last state
            becomes a line.
        clock: returns the seconds.

    Attributes:
        live: what a terminal shows at this moment of the line that is not finished, or ``""`` if
            there is none.
    """

    def __init__(self, pause: float = PAUSE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.live = ""
        self._pause = pause
        self._clock = clock
        self._drawing = False  # the line that is being written is drawn over
        self._held = ""  # the latest state of that line
        self._shown = ""  # the state that last became a line
        self._due = 0.0

    @property
    def idle(self) -> bool:
        """Tell whether no line is being drawn over.

        A line without a carriage return then stays as it is.
        """
        return not self._drawing

    def take(self, lines: Iterable[str], unfinished: str = "") -> list[str]:
        """Return what becomes of the next lines of the log.

        Args:
            lines: as in `transload.schedulers.LogPage`.
            unfinished: the text behind them, which no newline has ended yet.
        """
        found = []
        for line in lines:
            if self._drawing or "\r" in line:
                found.extend(self._next(line))
            else:
                found.append(line)
        if self._drawing:
            self._held = drawn(unfinished) or self._held
            found.extend(self._state_if_due())
        self.live = drawn(unfinished) or self._held
        return found

    def rest(self) -> list[str]:
        """Return the last state that was drawn, if it has not become a line yet.

        It is called when the log has ended.
        """
        last = self._held
        self.live = ""
        self._held = ""
        self._drawing = False
        if last in ("", self._shown):
            return []
        return [f"{last}\n"]

    def _next(self, line: str) -> list[str]:
        if line.endswith("\r"):
            self._drawing = True
            self._held = drawn(line) or self._held
            return []
        text = drawn(line)
        before = self._held
        shown = self._shown
        self._held = ""
        self._shown = ""
        self._drawing = False
        if not before:
            return [text]
        if not text.strip():
            text = f"{before}\n"  # the newline that a bar ends with, whose last state stays
        if text.rstrip("\n") == shown:
            return []
        return [text]

    def _state_if_due(self) -> list[str]:
        now = self._clock()
        if now < self._due or self._held in ("", self._shown):
            return []
        if self._pause == float("inf"):
            return []
        self._due = now + self._pause
        self._shown = self._held
        return [f"{self._held}\n"]
