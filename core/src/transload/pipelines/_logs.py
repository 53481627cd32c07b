"""Log lines of an app, handed to a host: none lost, none twice, whole lines only, from wherever one left off."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, ConfigError, SchedulerUnavailable
from transload.schedulers.api import Stream
from transload.specs._json import SCHEMA, reading

if TYPE_CHECKING:
    from transload.schedulers.api import LogPage, SchedulerBase

LogSink = Callable[[str, int, Stream, str], None]
"""``sink(role, replica, stream, line)``; the line ends in a newline, save perhaps the last one of a replica."""

PAGES_PER_TURN: Final = 16
"""How many pages of one replica are read before the others get their turn."""

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(lines|B|kB|KB|MB|GB|KiB|MiB|GiB)?\s*(?:/\s*s)?\s*\Z")
_UNITS: Final = {"B": 1, "kB": 1000, "KB": 1000, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True)
class LogRate:
    """How much of a log is handed on.

    Args:
        per_second: lines or bytes.
        in_bytes: True for bytes.
    """

    per_second: float
    in_bytes: bool = False

    @staticmethod
    def parse(value: int | float | str) -> LogRate:
        """Read ``1000`` or ``"1000 lines/s"`` (lines), ``"5 MB/s"`` or ``"64KiB/s"`` (bytes).

        Raises:
            ConfigError: for anything else.
        """
        match = None if isinstance(value, bool) else _RATE.match(str(value))
        if match is None or float(match.group(1)) <= 0:
            raise ConfigError(f"max_log_rate={value!r}: must be a number of lines a second, or a text like '5 MB/s'")
        unit = match.group(2)
        if unit in _UNITS:
            return LogRate(float(match.group(1)) * _UNITS[unit], True)
        return LogRate(float(match.group(1)))


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
    tail: deque[str] = field(default_factory=deque)


class LogForwarder:
    """Hands the lines of all replicas and streams of an app to a sink.

    `pump` never blocks longer than its scheduler's queries take. `cursor` is JSON: given to another forwarder, in
    another process too, it goes on exactly there. Memory does not grow with the log.

    Args:
        scheduler: where the app is.
        app_id: the app.
        sink: gets each line.
        cursor: where an earlier forwarder left off.
        max_log_rate: see `LogRate.parse`; what is over it is dropped, counted, and said in a line of its own.
        streams: which outputs; where the scheduler does not tell them apart, both as one.
        keep: how many last lines of each replica and stream are kept for `tail`.
        pointer: what to tell people who want the dropped lines; default: the command that shows them.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        scheduler: SchedulerBase,
        app_id: str,
        sink: LogSink,
        *,
        cursor: dict[str, Any] | None = None,
        max_log_rate: int | str | LogRate | None = None,
        streams: Sequence[Stream] = (Stream.STDOUT, Stream.STDERR),
        keep: int = 20,
        pointer: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._app_id = app_id
        self._sink = sink
        apart = set(streams) <= scheduler.capabilities.streams
        self._streams = list(streams) if apart else [Stream.COMBINED]
        self._keep = keep
        self._pointer = pointer or f"all of it: transload log, app {app_id}"
        rate = max_log_rate
        self._rate = rate if rate is None or isinstance(rate, LogRate) else LogRate.parse(rate)
        self._clock = clock
        self._tokens = self._rate.per_second if self._rate else 0.0
        self._filled = clock()
        self._sources: dict[str, _Source] = {}
        self._discovered = False
        self.dropped = 0
        if cursor is not None:
            self._restore(cursor)

    # -- where we are

    @property
    def cursor(self) -> dict[str, Any]:
        """JSON values that say what was handed on so far."""
        sources = {
            key: [each.cursor, each.skip, each.complete, each.dropped, each.lost] for key, each in self._sources.items()
        }
        return {"schema": SCHEMA, "sources": sources, "dropped": self.dropped}

    @property
    def complete(self) -> bool:
        """True once all replicas have ended and all of their lines were handed on."""
        return self._discovered and all(source.complete for source in self._sources.values())

    def tail(self, role: str, replica: int) -> list[str]:
        """Return the last lines of a replica that passed here: of stderr, or of the other streams if it was silent."""
        found = [each for each in self._sources.values() if (each.role, each.replica) == (role, replica) and each.tail]
        found.sort(key=lambda each: each.stream is not Stream.STDERR)
        return list(found[0].tail) if found else []

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
            source = self._sources[key] = _Source(role, replica, stream, tail=deque(maxlen=self._keep))
        return source

    def _discover(self) -> None:
        """Learn which replicas there are; once an app is described, they do not change."""
        if self._discovered:
            return
        description = self._scheduler.describe(self._app_id)
        if description is None:
            return
        pairs = [
            (role.name, k)
            for role in (description.app.roles if description.app else ())
            for k in range(role.num_replicas)
        ]
        if not pairs:
            pairs = [(role.role, replica.id) for role in description.status.roles for replica in role.replicas]
        for role_name, k in pairs:
            for stream in self._streams:
                self._source(role_name, k, stream)
        self._discovered = bool(pairs)

    # -- moving

    def pump(self) -> int:
        """Hand on what is there now; return how many lines were handed on (or dropped by the rate).

        A scheduler that cannot be reached gives nothing now; what it has comes later. An exception of the sink is
        the caller's; no line is lost by it, and none comes twice.
        """
        try:
            self._discover()
        except SchedulerUnavailable:
            return 0
        total = 0
        for source in list(self._sources.values()):
            if source.complete:
                continue
            try:
                total += self._turn(source)
            except AppNotFound:
                source.complete = True
            except SchedulerUnavailable:
                break
        return total

    def drain(self, seconds: float = 10.0, sleep: Callable[[float], None] = time.sleep) -> None:
        """Hand on all that is left of an app that has ended, waiting up to ``seconds`` for late lines."""
        end = self._clock() + seconds
        pause = 0.005
        while True:
            moved = self.pump()
            if self.complete or (not moved and self._clock() >= end):
                break
            if not moved:
                sleep(pause)
                pause = min(pause * 1.5, 0.25)
        for source in self._sources.values():
            self._tell(source)

    def _turn(self, source: _Source) -> int:
        total = 0
        for _ in range(PAGES_PER_TURN):
            page = self._scheduler.log_read(self._app_id, source.role, source.replica, source.stream, source.cursor)
            source.lost += page.dropped
            total += self._hand_on(source, page)
            if page.complete or not page.lines:
                source.complete = page.complete
                break
        return total

    def _hand_on(self, source: _Source, page: LogPage) -> int:
        lines = page.lines
        first = min(source.skip, len(lines))
        if source.lost:
            self._tell(source)
        if self._rate is not None:
            self._hand_on_at_rate(source, lines, first)
        else:
            sink, role, replica, stream = self._sink, source.role, source.replica, source.stream
            index = first
            try:
                for index in range(first, len(lines)):
                    sink(role, replica, stream, lines[index])
            except BaseException:
                source.skip = source.skip - first + index
                raise
        source.skip -= first
        source.tail.extend(lines[-self._keep :])
        source.cursor = page.cursor
        return len(lines) - first

    def _hand_on_at_rate(self, source: _Source, lines: list[str], first: int) -> None:
        done = first
        try:
            for index in range(first, len(lines)):
                if self._allowed(lines[index]):
                    self._tell(source)
                    self._sink(source.role, source.replica, source.stream, lines[index])
                else:
                    source.dropped += 1
                    self.dropped += 1
                done = index + 1
        except BaseException:
            source.skip = source.skip - first + done
            raise

    def _allowed(self, line: str) -> bool:
        assert self._rate is not None
        cost = 1
        if self._rate.in_bytes:
            cost = len(line) if line.isascii() else len(line.encode("utf-8", "surrogateescape"))
        if self._tokens < cost:
            now = self._clock()
            self._tokens = min(self._rate.per_second, self._tokens + (now - self._filled) * self._rate.per_second)
            self._filled = now
        # a line longer than a second's worth passes when the bucket is full, or it never would
        if self._tokens >= min(cost, self._rate.per_second):
            self._tokens -= cost
            return True
        return False

    def _tell(self, source: _Source) -> None:
        """Say in the host's log what is missing there, and where it is."""
        where = f"{source.role}/{source.replica}"
        if source.dropped:
            text = f"[transload] {source.dropped} lines of {where} left out by max_log_rate; {self._pointer}\n"
            self._sink(source.role, source.replica, source.stream, text)
            source.dropped = 0
        if source.lost:
            text = f"[transload] {source.lost} bytes of {where} were dropped by the scheduler's size limit\n"
            self._sink(source.role, source.replica, source.stream, text)
            source.lost = 0
