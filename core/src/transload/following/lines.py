"""The lines of one log: page by page, the exact choice of them, the last ones, both streams as one."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError, TransloadError, UnsupportedFeature
from transload.following.patience import longer
from transload.schedulers.api import LogPage, Stream

if TYPE_CHECKING:
    from transload.following.workers import LogSubscription
    from transload.schedulers.api import SchedulerBase

PAGE: Final = 1 << 18
"""Bytes that are read at once."""


class LogReader:
    """One stream of one replica, read page by page.

    Args:
        scheduler: where the app is.
        app_id: the app.
        role: the role.
        replica: number of the replica within the role.
        stream: which output.
        cursor: where to begin; None: at the beginning.
        wanted: what is asked of ``log_read`` besides: ``since``, ``until``, ``last``.

    Raises:
        UnsupportedFeature: if the scheduler cannot tell that output apart, or keeps no times.
    """

    def __init__(
        self,
        scheduler: SchedulerBase,
        app_id: str,
        role: str,
        replica: int,
        stream: Stream,
        cursor: str | None = None,
        **wanted: Any,
    ) -> None:
        self.scheduler, self.app_id, self.role, self.replica, self.stream = scheduler, app_id, role, replica, stream
        self.cursor = cursor
        self.complete = self.moved = False
        self._wanted = {name: value for name, value in wanted.items() if value is not None}
        offered = scheduler.capabilities.streams
        self._merged = stream is Stream.COMBINED and stream not in offered
        if stream not in offered and not (self._merged and len(offered) == 2):
            names = ", ".join(sorted(each.value for each in offered))
            message = f"stream {stream.value}: scheduler {scheduler.name!r} does not tell it apart (it has: {names})"
            raise UnsupportedFeature(message, "stream")
        if not scheduler.capabilities.since_until and not self._wanted.keys().isdisjoint(("since", "until")):
            raise UnsupportedFeature(f"since, until: scheduler {scheduler.name!r} keeps no times of lines", "since")

    def read(self, max_bytes: int = PAGE) -> LogPage:
        """Return the next page, at once; the cursor moves behind it.

        Raises:
            AppNotFound: if there is no such app.
            SpecError: for an unknown role or replica.
            SchedulerUnavailable: if the scheduler cannot be asked.
        """
        if self._merged:
            page = self._read_both(max_bytes)
        else:
            page = self._page(self.stream, self.cursor, max_bytes)
        self.moved = bool(page.lines) or (page.cursor != self.cursor and self.cursor is not None)
        self.cursor, self.complete = page.cursor, page.complete
        return page

    def _page(self, stream: Stream, cursor: str | None, max_bytes: int) -> LogPage:
        return self.scheduler.log_read(self.app_id, self.role, self.replica, stream, cursor, max_bytes, **self._wanted)

    def _read_both(self, max_bytes: int) -> LogPage:
        """Return a page of both streams in the order of their stamps; the cursor holds both and what was taken."""
        places: list[Any] = json.loads(self.cursor) if self.cursor else [[None, 0], [None, 0]]
        pages = [self._page(each, at[0], max_bytes) for each, at in zip(_BOTH, places, strict=True)]
        timed = [list(zip(times(page), page.lines, strict=True)) for page in pages]
        # of a full page more may follow: what the other one wrote later waits for it
        full = [each[-1][0] for page, each in zip(pages, timed, strict=True) if sum(map(len, page.lines)) >= max_bytes]
        found: list[tuple[float, str, int]] = []
        rows = [[(t, line, n) for t, line in each[places[n][1] :]] for n, each in enumerate(timed)]
        for row in merge(*rows, key=lambda row: row[0]):
            if full and row[0] > min(full):
                break
            found.append(row)
        for n, page in enumerate(pages):
            taken = places[n][1] + sum(row[2] == n for row in found)
            places[n] = [page.cursor, 0] if taken == len(page.lines) else [places[n][0], taken]
        whole = all(place[1] == 0 for place in places)
        return LogPage(
            [line for _, line, _ in found],
            json.dumps(places),
            whole and all(page.complete for page in pages),
            sum(page.dropped for page in pages) if whole else 0,
            [(index, row[0]) for index, row in enumerate(found)],
        )


_BOTH: Final = (Stream.STDOUT, Stream.STDERR)


def times(page: LogPage, before: float = 0.0) -> list[float]:
    """Return the time of each line of a page; ``before`` for those before the first stamp."""
    found: list[float] = []
    moment = before
    for index, stamp in [*page.stamps, (len(page.lines), 0.0)]:
        found.extend([moment] * (index - len(found)))
        moment = stamp
    return found


class LineFilter:
    """Chooses lines of one log: those in which a pattern is found, and which were written within a span of time.

    Args:
        regex: the pattern; None: any line.
        since: seconds since the epoch; lines before it are left out.
        until: seconds since the epoch; lines from it on are left out.

    Raises:
        SpecError: for a bad pattern.
    """

    def __init__(self, regex: str | None = None, since: float | None = None, until: float | None = None) -> None:
        try:
            self._found = None if regex is None else re.compile(regex).search
        except re.error as exc:
            raise SpecError(f"regex={regex!r}: not a regular expression: {exc}") from exc
        self._since = float("-inf") if since is None else since
        self._until = float("inf") if until is None else until
        self._timed = since is not None or until is not None
        self._moment = 0.0

    def take(self, page: LogPage) -> list[str]:
        """Return the wanted lines of the next page."""
        lines = page.lines
        if self._timed and lines:
            moments = times(page, self._moment)
            self._moment = moments[-1]
            lines = [line for line, at in zip(lines, moments, strict=True) if self._since <= at < self._until]
        return lines if self._found is None else [line for line in lines if self._found(line)]


def last_lines(
    scheduler: SchedulerBase, app_id: str, role: str, replica: int, stream: Stream, count: int
) -> Sequence[str]:
    """Return the last lines of one stream of a replica, in constant memory.

    Raises:
        AppNotFound: if there is no such app.
        SpecError: for an unknown role or replica.
        SchedulerUnavailable: if the scheduler cannot be asked.
    """
    kept: deque[str] = deque(maxlen=count)
    reader = LogReader(scheduler, app_id, role, replica, stream, last=count)
    while True:
        page = reader.read(1 << 20)
        kept.extend(page.lines)
        if page.complete or not reader.moved:
            return list(kept)


def last_words(scheduler: SchedulerBase, app_id: str, role: str, replica: int, count: int) -> Sequence[str]:
    """Return the last lines of a replica, of all it wrote; none if they cannot be read."""
    try:
        return last_lines(scheduler, app_id, role, replica, Stream.COMBINED, count)
    except TransloadError:
        return []


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
    """Return an iterator over the lines of one log; arguments and errors are checked at the call.

    Args:
        scheduler: where the app is.
        app_id: the app.
        role: the role.
        replica: number of the replica within the role.
        stream: which output.
        regex: only lines in which it is found.
        since: only lines written at or after this time, seconds since the epoch.
        until: only lines written before this time; following ends then.
        follow: go on until the replica has ended.
        patience: seconds for which a scheduler that cannot be asked is asked again, when following.

    Raises:
        AppNotFound: if there is no such app.
        SpecError: for an unknown role or replica, or a bad pattern.
        UnsupportedFeature: if the scheduler cannot tell that output apart, or keeps no times.
    """
    chosen = LineFilter(regex, since, until)
    reader = LogReader(scheduler, app_id, role, replica, stream, since=since, until=until)
    return _lines(reader, reader.read(), chosen, until, follow, patience)


def _lines(
    reader: LogReader, page: LogPage, chosen: LineFilter, until: float | None, follow: bool, patience: float
) -> Iterator[str]:
    from transload.following.follower import get_follower

    look = threading.Event()
    growing: LogSubscription | None = None
    failed_at: float | None = None

    def tell() -> bool:
        look.set()
        return reader.moved

    try:
        while True:
            if page.dropped:
                yield f"[{page.dropped} bytes were dropped here: the log has a limit of size]\n"
            yield from chosen.take(page)
            if reader.complete or not (reader.moved or follow):
                return
            if not reader.moved:
                if until is not None and time.time() >= until:
                    return
                if growing is None:  # first listen, then read once more: nothing falls in between
                    growing = get_follower().read_logs(reader.scheduler, reader.app_id, tell)
                else:
                    look.wait(None if until is None else min(max(0.0, until - time.time()), threading.TIMEOUT_MAX))
            look.clear()
            try:
                page, failed_at = reader.read(), None
            except AppNotFound:
                return  # deleted meanwhile
            except SchedulerUnavailable:
                failed_at = failed_at or time.monotonic()
                if not follow or time.monotonic() - failed_at > patience:
                    raise
                page, reader.moved = LogPage([], reader.cursor or "", False), False
    finally:
        if growing is not None:
            growing.close()


class ReplicaLogs:
    """The logs of several replicas of an app, read without a thread or an open file for each.

    Args:
        scheduler: where the app is.
        app_id: the app.
        replicas: ``(role, number)`` of those to read.
        stream: which output.
        sink: gets the pages, ``sink(role, number, page)``, in order within a replica.
    """

    def __init__(
        self,
        scheduler: SchedulerBase,
        app_id: str,
        replicas: Sequence[tuple[str, int]],
        stream: Stream,
        sink: Callable[[str, int, LogPage], None],
    ) -> None:
        self._readers = [LogReader(scheduler, app_id, role, k, stream) for role, k in replicas]
        self._sink = sink
        self.stopped = False
        """Set it to have `read` return after the page that it reads."""
        self.dropped = 0
        """Bytes that were lost to a size limit before they were read."""

    @property
    def complete(self) -> bool:
        """Tell whether all replicas have ended and everything was read."""
        return all(each.complete for each in self._readers)

    def read(self) -> bool:
        """Hand on everything that is there now; tell whether there was anything."""
        found = False
        try:
            for reader in self._readers:
                while not reader.complete and not self.stopped:
                    page = reader.read()
                    self.dropped += page.dropped
                    if page.lines:
                        self._sink(reader.role, reader.replica, page)
                    if not reader.moved:
                        break
                    found = True
        except SchedulerUnavailable:
            pass  # it is read when the scheduler answers again
        except AppNotFound:
            for reader in self._readers:
                reader.complete = True
        return found

    def drain(self, silence: float = 5.0) -> None:
        """Hand on the rest of an app that has ended; what stays silent for so many seconds is given up."""
        pause, heard = 0.005, time.monotonic()
        while not self.complete and time.monotonic() - heard < silence:
            found = self.read()
            if found:
                heard = time.monotonic()
            if not self.complete:
                time.sleep(pause)
            pause = 0.005 if found else longer(pause, 0.05)
