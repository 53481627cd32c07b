"""Pass on the log lines of a job to an orchestrator.

No line is lost and none comes twice, also where another process goes on. Lines are whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable
from transload.runner.logs import PAGES_PER_TURN, LogReader, Redraws, drain
from transload.schedulers.api import LogPage, LogQuery, Stream, replicas_of
from transload.schedulers.follower import read_logs
from transload.specs.serialization import SCHEMA, reading

if TYPE_CHECKING:
    from transload.schedulers.api import SchedulerBase
    from transload.schedulers.subscription import Subscription

LogSink = Callable[[str, int, Stream, str], None]
"""The callable ``sink(role, replica, stream, line)``.

Each line ends in a newline, except perhaps a replica's last one.
"""

FIRST_S: Final = 0.05
"""Seconds before logs are followed. Those of a job that has ended by then are read once."""


@dataclass(slots=True)
class _Source:
    """One stream of one replica, and how far it was read."""

    role: str
    replica: int
    stream: Stream
    cursor: str | None = None
    skip: int = 0  # lines after the cursor that were passed on already
    complete: bool = False
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
        longest: longest pause in seconds between two looks at the logs.
        cursor: where an earlier forwarder stopped. None means that there was none.
        last: begin with so many of the last lines of each replica. None means with the first line.
    """

    def __init__(
        self,
        handle: str,
        locate: Callable[[], tuple[SchedulerBase, str]],
        sink: LogSink | None,
        longest: float,
        cursor: dict[str, Any] | None = None,
        last: int | None = None,
    ) -> None:
        self.handle = handle
        self.due = False
        self._locate = locate
        self._sink = sink
        self._last = last
        self._longest = longest
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
            key: [each.cursor, each.skip, each.complete, each.lost]
            for key, each in self._sources.items()
        }
        return {"schema": SCHEMA, "sources": sources}

    @property
    def complete(self) -> bool:
        """Return whether all replicas have ended and all of their lines were passed on."""
        return self._discovered and all(source.complete for source in self._sources.values())

    def _restore(self, cursor: dict[str, Any]) -> None:
        with reading("log cursor", cursor) as values:
            for key, (position, skip, complete, lost) in values["sources"].items():
                role, replica, stream = key.rsplit("/", 2)
                source = self._source(role, int(replica), Stream(stream))
                source.cursor = position
                source.skip = skip
                source.complete = complete
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
            How many lines were passed on.
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
                if source.complete:
                    continue
                query = LogQuery(source.role, source.replica, source.stream, source.cursor)
                reader = LogReader(scheduler, app_id, query)
                for page in self._pages(reader, source):
                    total += self._hand_on(source, page)
                source.complete = reader.complete
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

    def _pages(self, reader: LogReader, source: _Source) -> Iterator[LogPage]:
        """Yield the pages that a source has now, a limited number of them."""
        try:
            if source.cursor is None and self._last is not None:
                yield reader.last_page(self._last)
                return
            for page in reader.pages(PAGES_PER_TURN):
                source.lost += page.dropped
                yield page
        except AppNotFound:
            reader.complete = True

    def _hand_on(self, source: _Source, page: LogPage) -> int:
        """Pass on the lines of a page that were not passed on before, and return their number."""
        lines = page.lines
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
        assert self._sink is not None
        self._sink(source.role, source.replica, source.stream, line)

    def _report_missing(self, source: _Source) -> None:
        """Say in the orchestrator's log how much is missing there."""
        if not source.lost:
            return
        where = f"{source.role}/{source.replica}"
        text = f"{source.lost} bytes of {where} were dropped by the scheduler's size limit"
        self._pass_on(source, f"[transload] {text}\n")
        source.lost = 0
