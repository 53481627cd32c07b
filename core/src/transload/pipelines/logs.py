"""Pass on the log lines of a job to an orchestrator.

No line is lost and none comes twice, also where another process goes on. Lines are whole.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, ConfigError, SchedulerUnavailable
from transload.runner.logs import PAGES_PER_TURN, Redraws, drain
from transload.schedulers.api import LogPage, LogQuery, Stream, replicas_of
from transload.schedulers.follower import read_logs
from transload.specs.serialization import SCHEMA, reading

if TYPE_CHECKING:
    from transload.pipelines.options import ExecutionOptions
    from transload.schedulers.api import SchedulerBase
    from transload.schedulers.subscription import Subscription

LogSink = Callable[[str, int, Stream, str], None]
"""The callable ``sink(role, replica, stream, line)``.

Each line ends in a newline, except perhaps a replica's last one.
"""

FIRST_S: Final = 0.05
"""Seconds before logs are followed. Those of a job that has ended by then are read once."""

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(lines|B|kB|KB|MB|GB|KiB|MiB|GiB)?\s*(?:/\s*s)?\s*\Z")
_UNITS: Final = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def parse_rate(value: int | float | str) -> tuple[float, bool]:
    """Read a rate such as ``1000``, ``"1000 lines/s"``, ``"5 MB/s"`` or ``"64KiB/s"``.

    Returns:
        The number a second, and whether it counts bytes (else lines).

    Raises:
        ConfigError: for anything else.
    """
    match = _RATE.match(str(value))
    if match is None or isinstance(value, bool) or float(match.group(1)) <= 0:
        raise ConfigError(
            f"max_log_rate={value!r}: must be a number of lines a second, or a text like '5 MB/s'"
        )
    number = float(match.group(1))
    unit = match.group(2)
    if unit not in _UNITS:
        return number, False
    return number * _UNITS[unit], True


class _Rate:
    """Limits how much is passed on. What was not used is saved up, for at most a second.

    Args:
        value: as `parse_rate` reads it.
        clock: returns the seconds.
    """

    def __init__(self, value: int | float | str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._per_second, self._in_bytes = parse_rate(value)
        self._saved = self._per_second
        self._counted_at = clock()

    def allows(self, line: str) -> bool:
        """Tell whether a line may be passed on now, and count it if so."""
        cost = self._cost(line)
        if self._saved < cost:
            now = self._clock()
            gained = (now - self._counted_at) * self._per_second
            self._saved = min(self._per_second, self._saved + gained)
            self._counted_at = now
        # a line longer than a second's worth would else never pass
        if self._saved < min(cost, self._per_second):
            return False
        self._saved -= cost
        return True

    def _cost(self, line: str) -> int:
        if not self._in_bytes:
            return 1
        if line.isascii():
            return len(line)
        return len(line.encode("utf-8", "surrogateescape"))


@dataclass(slots=True)
class _Source:
    """One stream of one replica, and how far it was read."""

    role: str
    replica: int
    stream: Stream
    cursor: str | None = None
    skip: int = 0  # lines after the cursor that were passed on already
    complete: bool = False
    dropped: int = 0  # lines left out by the rate, not reported yet
    lost: int = 0  # bytes that the scheduler had dropped, not reported yet
    redraws: Redraws | None = None  # of lines that are drawn over, which most programs do not have


class LogForwarder:
    """Passes the lines of all replicas and streams of a job to a sink, and keeps its position.

    `pump` never blocks longer than its scheduler's queries take. `cursor` is JSON. Another
    forwarder that gets it, in another process too, goes on exactly there. Memory does not grow
    with the log.

    Args:
        handle: the job.
        locate: returns its scheduler, and its id there.
        sink: gets each line. None means that nothing is forwarded.
        options: the orchestrator's settings.
        cursor: where an earlier forwarder stopped. None means that there was none.
        last: begin with so many of the last lines of each replica. None means with the first line.
        clock: returns the seconds by which the rate is counted.
    """

    def __init__(
        self,
        handle: str,
        locate: Callable[[], tuple[SchedulerBase, str]],
        sink: LogSink | None,
        options: ExecutionOptions,
        cursor: dict[str, Any] | None = None,
        last: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.handle = handle
        self.dropped = 0
        self.due = False
        self._locate = locate
        self._sink = sink
        self._last = last
        self._longest = options.logging_interval
        self._rate: _Rate | None = None
        if options.max_log_rate is not None:
            self._rate = _Rate(options.max_log_rate, clock)
        self._sources: dict[str, _Source] = {}
        self._discovered = False  # the replicas are known
        self._moved = False  # the last `pump` passed something on
        self._failed: Exception | None = None
        self._subscription: Subscription | None = None
        self._first = time.monotonic() + FIRST_S
        if cursor is not None:
            self._restore(cursor)

    # -- the position

    @property
    def cursor(self) -> dict[str, Any] | None:
        """Return JSON values of the position in each log, or None if nothing was read."""
        if not self._sources:
            return None
        sources = {
            key: [each.cursor, each.skip, each.complete, each.dropped, each.lost]
            for key, each in self._sources.items()
        }
        return {"schema": SCHEMA, "sources": sources, "dropped": self.dropped}

    @property
    def complete(self) -> bool:
        """Return whether all replicas have ended and all of their lines were passed on."""
        return self._discovered and all(source.complete for source in self._sources.values())

    def _restore(self, cursor: dict[str, Any]) -> None:
        with reading("log cursor", cursor) as values:
            self.dropped = int(values.get("dropped", 0))
            for key, (position, skip, complete, dropped, lost) in values["sources"].items():
                role, replica, stream = key.rsplit("/", 2)
                source = self._source(role, int(replica), Stream(stream))
                source.cursor = position
                source.skip = skip
                source.complete = complete
                source.dropped = dropped
                source.lost = lost

    def _source(self, role: str, replica: int, stream: Stream) -> _Source:
        key = f"{role}/{replica}/{stream.value}"
        return self._sources.setdefault(key, _Source(role, replica, stream))

    def _discover(self, scheduler: SchedulerBase, app_id: str) -> None:
        """Find out which replicas there are. Once a job is described, they do not change."""
        if self._discovered:
            return
        description = scheduler.describe([app_id])[app_id]
        if description is None:
            return
        streams = [Stream.STDOUT, Stream.STDERR]
        if not scheduler.streams.issuperset(streams):
            streams = [Stream.COMBINED]
        for role, replica in replicas_of(description):
            for stream in streams:
                self._source(role, replica, stream)
            self._discovered = True

    # -- when lines are passed on

    @property
    def pause(self) -> float:
        """Return the seconds until `follow` begins.

        They are infinite where it has begun, or there is no sink.
        """
        if self._sink is None or self._subscription is not None:
            return float("inf")
        return max(0.0, self._first - time.monotonic())

    def follow(self, wake: Callable[[], object], *, here: bool) -> None:
        """Pass on lines as they come, until `stop`.

        Does nothing before `pause` is over, nor where it was called before.

        Args:
            wake: called when `due` has become true.
            here: the caller hands lines on, in its own thread, by `pump`. Otherwise the thread of
                the scheduler's logs does so, and `due` means that it failed.
        """
        if self.pause > 0.0:
            return
        read = partial(self._pump_in_this_thread, wake)
        if here:
            read = partial(self._ask_for_pump, wake)
        self._subscription = read_logs(*self._locate(), read, longest=self._longest)

    def _ask_for_pump(self, wake: Callable[[], object]) -> bool:
        if not self.due:
            self.due = True
            wake()
        return self._moved

    def _pump_in_this_thread(self, wake: Callable[[], object]) -> bool:
        try:
            return self.pump() > 0
        except Exception as exc:
            self.due = True
            self._failed = exc
            wake()
            raise

    def stop(self) -> None:
        """End what `follow` began."""
        subscription = self._subscription
        self._subscription = None
        if subscription is not None:
            subscription.close(-1)

    def pump(self) -> int:
        """Pass on what is there now.

        A scheduler that cannot be reached gives nothing now, and the rest comes later. An
        exception of the sink is the caller's, except where nobody reads the lines any more. No
        line is lost by it, and none comes twice.

        Returns:
            How many lines were passed on, or dropped by the rate.
        """
        self.due = False
        if self._failed is not None:
            raise self._failed
        moved = 0
        with suppress(SchedulerUnavailable):
            moved = self._hand_on_all()
        self._moved = moved > 0
        return moved

    def finish(self, silence: float = 10.0, patience: float = 0.0) -> None:
        """Pass on the rest of the lines of a job that has ended.

        Args:
            silence: seconds without a new line after which the rest is given up.
            patience: seconds for which a scheduler that is unreachable is asked again.
        """
        self.stop()
        if self._failed is not None:
            raise self._failed
        if self._sink is None or self.complete:
            return
        drain(
            lambda: self._hand_on_all() > 0,
            lambda: self.complete or self._sink is None,
            silence=silence,
            patience=patience,
        )
        with self._until_nobody_reads():
            for source in self._sources.values():
                self._finish(source)

    def _finish(self, source: _Source) -> None:
        """Pass on what is kept of a source, which has ended."""
        if self._sink is None:
            return
        if source.redraws is not None:
            for line in source.redraws.rest():
                self._pass_on(source, line)
        self._report_missing(source)

    # -- handing on

    def _hand_on_all(self) -> int:
        """Pass on what each source has now, and return the number of lines.

        Raises:
            SchedulerUnavailable: if the scheduler cannot be asked. Nothing is lost by it.
        """
        if self._sink is None:
            return 0
        scheduler, app_id = self._locate()
        total = 0
        with self._until_nobody_reads():
            self._discover(scheduler, app_id)
            for source in self._sources.values():
                for page in self._pages(scheduler, app_id, source):
                    total += self._hand_on(source, page)
        return total

    @contextmanager
    def _until_nobody_reads(self) -> Iterator[None]:
        """Give a context in which the sink's broken pipe ends the forwarding, and nothing else.

        The line that it refused counts as not passed on.
        """
        try:
            yield
        except (BrokenPipeError, ConnectionResetError):
            self._sink = None

    def _pages(self, scheduler: SchedulerBase, app_id: str, source: _Source) -> Iterator[LogPage]:
        """Yield the pages that a source has now, a limited number of them."""
        if source.complete:
            return
        if source.cursor is None and self._last is not None:
            page = self._last_lines(scheduler, app_id, source, self._last)
            yield page
            source.complete = page.complete
            return
        for _ in range(PAGES_PER_TURN):
            query = LogQuery(source.role, source.replica, source.stream, source.cursor)
            try:
                page = scheduler.log_read(app_id, query)
            except AppNotFound:
                source.complete = True
                return
            source.lost += page.dropped
            yield page
            if page.complete or not page.lines:
                source.complete = page.complete
                return

    def _last_lines(
        self, scheduler: SchedulerBase, app_id: str, source: _Source, last: int
    ) -> LogPage:
        """Return one page with the last lines that a source has now."""
        kept: deque[str] = deque(maxlen=last)
        cursor = None
        while True:
            # a scheduler that cannot do that cheaply begins with the first line
            wanted = last if cursor is None else None
            query = LogQuery(source.role, source.replica, source.stream, cursor, last=wanted)
            try:
                page = scheduler.log_read(app_id, query)
            except AppNotFound:
                return LogPage(list(kept), cursor or "", complete=True)
            kept.extend(page.lines)
            cursor = page.cursor
            if page.complete or not page.lines:
                return replace(page, lines=list(kept), stamps=[])

    def _hand_on(self, source: _Source, page: LogPage) -> int:
        """Pass on the lines of a page that were not passed on before, and return their number."""
        lines = page.lines
        if source.lost:
            self._report_missing(source)
        first = min(source.skip, len(lines))
        skip_later = source.skip - first
        for number in range(first, len(lines)):
            source.skip = number  # if the sink raises, this line is the next one
            line = lines[number]
            if source.redraws is None and "\r" not in line:
                self._pass_on(source, line)
            else:
                is_last = number == len(lines) - 1
                self._redraw(source, line, page.unfinished if is_last else "")
        source.skip = skip_later
        source.cursor = page.cursor
        return len(lines) - first

    def _redraw(self, source: _Source, line: str, unfinished: str) -> None:
        """Pass on what becomes of a line that is drawn over, or follows such a line."""
        if source.redraws is None:
            source.redraws = Redraws()
        for shown in source.redraws.take([line], unfinished):
            self._pass_on(source, shown)

    def _pass_on(self, source: _Source, line: str) -> None:
        """Pass one line to the sink, unless the rate is used up."""
        if self._rate is not None and not self._rate.allows(line):
            source.dropped += 1
            self.dropped += 1
            return
        if source.dropped:
            self._report_missing(source)
        assert self._sink is not None
        self._sink(source.role, source.replica, source.stream, line)

    def _report_missing(self, source: _Source) -> None:
        """Say in the orchestrator's log which lines are missing there, and where they are."""
        where = f"{source.role}/{source.replica}"
        if source.dropped:
            self._write(
                source,
                f"[transload] {source.dropped} lines of {where} were left out by max_log_rate; "
                f"to see all of it: transload log {self.handle}\n",
            )
            source.dropped = 0
        if source.lost:
            self._write(
                source,
                f"[transload] {source.lost} bytes of {where} were dropped by the scheduler's "
                "size limit\n",
            )
            source.lost = 0

    def _write(self, source: _Source, line: str) -> None:
        assert self._sink is not None
        self._sink(source.role, source.replica, source.stream, line)
