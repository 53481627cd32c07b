"""Log lines of an app, handed to a host: none lost, none twice, whole lines only, from wherever one
left off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, ConfigError, SchedulerUnavailable
from transload.runner.logs import PAGES_PER_TURN, drain
from transload.runner.redraws import Redraws
from transload.schedulers.api import LogQuery, Stream, replicas_of
from transload.schedulers.follower import read_logs
from transload.specs.serialization import SCHEMA, reading

if TYPE_CHECKING:
    from transload.pipelines.attach import AttachStore
    from transload.pipelines.options import ExecutionOptions
    from transload.schedulers.api import LogPage, SchedulerBase
    from transload.schedulers.subscription import Subscription

LogSink = Callable[[str, int, Stream, str], None]
"""``sink(role, replica, stream, line)``; the line ends in a newline, save perhaps the last one of a
replica."""

FIRST_S: Final = 0.05
"""Seconds before logs are followed: those of an app that has ended by then are read once."""

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
    """Read ``1000`` or ``"1000 lines/s"`` (lines), ``"5 MB/s"`` or ``"64KiB/s"`` (bytes).

    Returns:
        How many in a second, and whether these are bytes.

    Raises:
        ConfigError: for anything else.
    """
    match = None if isinstance(value, bool) else _RATE.match(str(value))
    if match is None or float(match.group(1)) <= 0:
        raise ConfigError(
            f"max_log_rate={value!r}: must be a number of lines a second, or a text like '5 MB/s'"
        )
    unit = match.group(2)
    return float(match.group(1)) * _UNITS.get(unit, 1), unit in _UNITS


@dataclass(slots=True)
class _Source:
    """One stream of one replica, and how far it was read."""

    role: str
    replica: int
    stream: Stream
    cursor: str | None = None
    skip: int = 0  # lines after the cursor that were handed on already
    complete: bool = False
    dropped: int = 0  # lines left out by the rate, not told yet
    lost: int = 0  # bytes that the scheduler had dropped, not told yet
    redraws: Redraws | None = None  # of lines that are drawn over; most programs draw none


class LogForwarder:
    """Hands the lines of all replicas and streams of an app to a sink, and keeps how far it came.

    `pump` never blocks longer than its scheduler's queries take. `cursor` is JSON: given to another
    forwarder, in another process too, it goes on exactly there. Memory does not grow with the log.

    Args:
        locate: returns its scheduler, and its id there.
        sink: gets each line; None: nothing is forwarded.
        options: the host's settings.
        store: where to keep how far it came, for a restart; None: nowhere.
        cursor: where an earlier forwarder left off; None: what the store has kept for this app.
    """

    def __init__(
        self,
        handle: str,
        locate: Callable[[], tuple[SchedulerBase, str]],
        sink: LogSink | None,
        options: ExecutionOptions,
        store: AttachStore | None = None,
        cursor: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.handle, self._locate, self._sink, self._store, self._clock = (
            handle,
            locate,
            sink,
            store,
            clock,
        )
        self._longest = options.logging_interval
        rate = options.max_log_rate
        self._rate: float | None
        self._rate, self._in_bytes = (None, False) if rate is None else parse_rate(rate)
        self._tokens, self._filled = self._rate or 0.0, clock()
        self._sources: dict[str, _Source] = {}
        self._discovered = self._moved = self._heard = False
        self._failed: Exception | None = None
        self._subscription: Subscription | None = None
        self._first = time.monotonic() + FIRST_S
        self.dropped = 0
        self.due = False
        if cursor is None and store is not None:
            kept = store.get() or {}
            cursor = kept.get("cursor") if kept.get("handle") == handle else None
        if cursor is not None:
            self._restore(cursor)

    # -- where we are

    @property
    def cursor(self) -> dict[str, Any] | None:
        """JSON values that say what was handed on so far; None: nothing was looked at."""
        sources = {
            key: [each.cursor, each.skip, each.complete, each.dropped, each.lost]
            for key, each in self._sources.items()
        }
        return {"schema": SCHEMA, "sources": sources, "dropped": self.dropped} if sources else None

    @property
    def complete(self) -> bool:
        """True once all replicas have ended and all of their lines were handed on."""
        return self._discovered and all(source.complete for source in self._sources.values())

    def _restore(self, cursor: dict[str, Any]) -> None:
        with reading("log cursor", cursor) as values:
            self.dropped = int(values.get("dropped", 0))
            for key, (position, skip, complete, dropped, lost) in values["sources"].items():
                role, replica, stream = key.rsplit("/", 2)
                source = self._source(role, int(replica), Stream(stream))
                source.cursor, source.skip, source.complete = position, skip, complete
                source.dropped, source.lost = dropped, lost

    def _source(self, role: str, replica: int, stream: Stream) -> _Source:
        key = f"{role}/{replica}/{stream.value}"
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source(role, replica, stream)
        return source

    def _discover(self, scheduler: SchedulerBase, app_id: str) -> None:
        """Learn which replicas there are; once an app is described, they do not change."""
        description = None if self._discovered else scheduler.describe(app_id)
        if description is not None:
            both = {Stream.STDOUT, Stream.STDERR} <= scheduler.capabilities.streams
            for role, k in replicas_of(description):
                for stream in (Stream.STDOUT, Stream.STDERR) if both else (Stream.COMBINED,):
                    self._source(role, k, stream)
                self._discovered = True

    # -- moving

    @property
    def pause(self) -> float:
        """Seconds until `follow` begins."""
        waits = self._sink is not None and self._subscription is None
        return max(0.0, self._first - time.monotonic()) if waits else float("inf")

    def follow(self, wake: Callable[[], object], *, here: bool) -> None:
        """Hand on lines as they come, until `stop`; nothing happens before `pause` is over, or the
        second time.

        Args:
            wake: called when `due` has become true.
            here: lines are handed on by `pump`, in the caller's thread; else in the thread of the
                scheduler's logs, and `due` only tells of an error.
        """

        def read() -> bool:
            if here:
                if not self.due:
                    self.due = True
                    wake()
                return self._moved
            try:
                return self.pump() > 0
            except Exception as exc:
                self.due, self._failed = True, exc
                wake()
                raise

        if self.pause == 0.0:
            self._subscription = read_logs(*self._locate(), read, longest=self._longest)

    def stop(self) -> None:
        """End what `follow` began."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close(-1)

    def pump(self) -> int:
        """Hand on what is there now; return how many lines were handed on (or dropped by the rate).

        A scheduler that cannot be reached gives nothing now; what it has comes later. An exception
        of the sink is the caller's; no line is lost by it, and none comes twice.
        """
        self.due = False
        if self._failed is not None:
            raise self._failed
        moved = self._hand_on_all()
        self._moved = moved > 0
        if moved:
            self._save()
        return moved

    def finish(self, silence: float = 10.0) -> None:
        """Hand on all that is left of an app that has ended; what stays silent for so many seconds
        is given up.
        """
        self.stop()
        if self._failed is not None:
            raise self._failed
        if self._sink is not None and not self.complete:
            drain(lambda: self._hand_on_all() > 0, lambda: self.complete, silence)
            for source in self._sources.values():
                for line in source.redraws.rest() if source.redraws is not None else ():
                    self._pass_on(source, line)
                self._tell(source)
            if self._heard:  # else it had nothing to say
                self._save()

    def _save(self) -> None:
        if self._store is not None:
            self._store.put({"schema": SCHEMA, "handle": self.handle, "cursor": self.cursor})

    def _hand_on_all(self) -> int:
        if self._sink is None:
            return 0
        scheduler, app_id = self._locate()
        total = 0
        try:
            self._discover(scheduler, app_id)
            for source in self._sources.values():
                try:
                    for _ in () if source.complete else range(PAGES_PER_TURN):
                        page = scheduler.log_read(
                            app_id,
                            LogQuery(source.role, source.replica, source.stream, source.cursor),
                        )
                        source.lost += page.dropped
                        total += self._hand_on(source, page)
                        if page.complete or not page.lines:
                            source.complete = page.complete
                            break
                except AppNotFound:
                    source.complete = True
        except SchedulerUnavailable:
            pass  # it comes when the scheduler answers again
        return total

    def _hand_on(self, source: _Source, page: LogPage) -> int:
        lines = page.lines
        done = first = min(source.skip, len(lines))
        if source.lost:
            self._tell(source)
        try:
            for done in range(first, len(lines)):
                line = lines[done]
                if source.redraws is None and "\r" not in line:
                    self._pass_on(source, line)
                    continue
                source.redraws = source.redraws or Redraws()
                unfinished = page.unfinished if done == len(lines) - 1 else ""
                for shown in source.redraws.take([line], unfinished):
                    self._pass_on(source, shown)
            done = len(lines)
        except BaseException:
            source.skip = source.skip - first + done
            raise
        source.skip -= first
        self._heard |= bool(lines)
        source.cursor = page.cursor
        return len(lines) - first

    def _pass_on(self, source: _Source, line: str) -> None:
        """Hand one line to the sink, unless the rate is used up."""
        if self._rate is not None and not self._allowed(line):
            source.dropped += 1
            self.dropped += 1
            return
        if source.dropped:
            self._tell(source)
        assert self._sink is not None
        self._sink(source.role, source.replica, source.stream, line)

    def _allowed(self, line: str) -> bool:
        assert self._rate is not None
        cost = 1
        if self._in_bytes:
            cost = len(line) if line.isascii() else len(line.encode("utf-8", "surrogateescape"))
        if self._tokens < cost:
            now = self._clock()
            self._tokens = min(self._rate, self._tokens + (now - self._filled) * self._rate)
            self._filled = now
        # a line longer than a second's worth passes when the bucket is full, or it never would
        if self._tokens >= min(cost, self._rate):
            self._tokens -= cost
            return True
        return False

    def _tell(self, source: _Source) -> None:
        """Say in the host's log what is missing there, and where it is."""
        where = f"{source.role}/{source.replica}"
        said = {
            "dropped": f"{source.dropped} lines of {where} left out by max_log_rate; "
            f"all of it: transload log {self.handle}",
            "lost": f"{source.lost} bytes of {where} were dropped by the scheduler's size limit",
        }
        assert self._sink is not None
        for what, text in said.items():
            if getattr(source, what):
                self._sink(source.role, source.replica, source.stream, f"[transload] {text}\n")
                setattr(source, what, 0)
