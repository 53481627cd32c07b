"""The log of a replica over all its attempts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum
from heapq import merge
from typing import Final

from transload.errors import SchedulerUnavailable
from transload.schedulers.api import LogPage, LogQuery, check_replica
from transload_docker.decide import is_alive, may_run_again
from transload_docker.engine import Engine
from transload_docker.logs import NS, NUMBERS, STDERR, STDOUT, Cursor, Line, Reader
from transload_docker.plan import Container, Facts

_OPEN: Final = 32
_IDLE_S: Final = 30.0

Key = tuple[str, tuple[int, ...], str]
"""Id of a container, streams, and the place where a reading goes on."""


class Reached(Enum):
    """How far the reading of a container's log has come."""

    FULL = "there may be more: enough was read, or the connection broke"
    ASKED = "the end of what was there when it was asked for"
    END = "the end of what is there"


@dataclass(slots=True)
class Piece:
    """Lines of the log of a replica.

    Args:
        lines: the lines.
        complete: there will never be more.
        left: bytes behind them; None: not known.
    """

    lines: list[Line]
    complete: bool = False
    left: int | None = 0


@dataclass(slots=True)
class Reading:
    """Requests for the streams of one container's log, and the lines that they bring, in order of
    time.

    Args:
        readers: one for each stream.
        ended: the container had ended when they were sent, so that nothing comes after them.
    """

    readers: list[Reader]
    ended: bool
    used: float = 0.0  # when it was last read (`time.monotonic`)
    newest: int = 0  # time of the newest message when they were sent, in nanoseconds; 0: not known
    lines: Iterator[Line] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = merge(*(reader.lines() for reader in self.readers), key=lambda line: line.time)

    @property
    def is_whole(self) -> bool:
        """Whether all of it was read: no connection broke."""
        return all(reader.at_end for reader in self.readers)

    def fill(self, cursor: Cursor, lines: list[Line], budget: int) -> bool:
        """Add lines until there are about so many bytes, moving the cursor; True if there may be
        more.
        """
        used = sum(line.size for line in lines)
        for line in self.lines:
            cursor.take(line)
            lines.append(line)
            used += line.size
            if used >= budget:
                return True
        return False

    def close(self) -> None:
        """Close the connections."""
        for reader in self.readers:
            reader.close()


class OpenReadings:
    """Readings of which a page was taken, and that go on there.

    An engine looks for a place from the beginning of a log on, so that asking anew for each page
    would take a time that grows with the square of the log.
    """

    def __init__(self) -> None:
        self._open: dict[Key, Reading] = {}
        self._lock = threading.Lock()

    def take(self, key: Key) -> Reading | None:
        """Return the reading that goes on at a place, if there is one; it is the caller's from then
        on.
        """
        with self._lock:
            return self._open.pop(key, None)

    def keep(self, key: Key, reading: Reading) -> None:
        """Keep a reading for who goes on there; the oldest of many, and what nobody goes on with,
        is closed.
        """
        reading.used = now = time.monotonic()
        with self._lock:
            self._open[key] = reading
            idle = [each for each, old in self._open.items() if now - old.used > _IDLE_S]
            left = [self._open.pop(each) for each in {*idle, *list(self._open)[:-_OPEN]}]
        for each in left:
            each.close()

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            left, self._open = self._open, {}
        for reading in left.values():
            reading.close()


class LogView:
    """What is asked of the log of one replica. Errors as in `check_replica`.

    Args:
        engine: the engine of the job.
        app_id: the job.
        query: what is wanted.
        facts: returns what is known of the job.
        kept: holds what goes on from page to page; None: nothing does.
    """

    def __init__(
        self,
        engine: Engine,
        app_id: str,
        query: LogQuery,
        facts: Callable[[], Facts],
        kept: OpenReadings | None = None,
    ) -> None:
        self._kept = kept
        self._engine = engine
        self._app_id = app_id
        self._query = query
        self._role = query.role
        self._k = query.replica
        self._streams = NUMBERS[query.stream]
        self._look = facts
        self._facts()

    def _facts(self) -> Facts:
        """Return what is known of the app, which has that replica."""
        facts = self._look()
        plan = facts.plan
        if facts.unread:
            raise SchedulerUnavailable(f"app {self._app_id}: {facts.unread}")
        replicas = None if plan is None else {role.name: role.num_replicas for role in plan.roles}
        check_replica(self._app_id, replicas, self._role, self._k)
        return facts

    def _attempts(self, facts: Facts) -> list[Container]:
        mine = [c for c in facts.containers if (c.role, c.replica) == (self._role, self._k)]
        mine.sort(key=lambda c: c.attempt)
        return [
            c for c in mine if c.status != "created" or c is mine[-1]
        ]  # one that could not be started has no log

    def page(self, cursor: Cursor, max_bytes: int, start: int = 0) -> Piece:
        """Return about ``max_bytes`` of lines from ``cursor`` on, which is moved.

        Nothing before ``start`` (nanoseconds since the epoch) is wanted.

        Raises:
            AppNotFound: if the app has been deleted.
            SchedulerUnavailable: if the engine cannot be reached.
        """
        facts = self._facts()
        assert facts.plan is not None
        lines: list[Line] = []
        attempts = [c for c in self._attempts(facts) if c.attempt >= cursor.attempt]
        again = may_run_again(facts.plan, facts, self._role, self._k)
        for number, container in enumerate(attempts):
            if container.attempt > cursor.attempt:
                cursor.next_attempt(container.attempt)
            if container.status == "created":
                return Piece(lines, complete=not again)
            ended = not is_alive(container)
            final = number + 1 == len(attempts) and not again
            reached = self._read(container, cursor, lines, max_bytes, ended, final, start)
            if reached is Reached.FULL:
                return Piece(lines, left=None)
            if reached is Reached.ASKED or not ended:
                return Piece(lines)
        return Piece(lines, complete=not again)

    def _read(
        self,
        container: Container,
        cursor: Cursor,
        lines: list[Line],
        budget: int,
        ended: bool,
        final: bool,
        start: int,
    ) -> Reached:
        """Read one attempt."""
        resumed = (
            self._kept.take((container.id, self._streams, cursor.text()))
            if self._kept is not None
            else None
        )
        reading = resumed if resumed is not None else self._ask(container, cursor, start, ended)
        before = len(lines)
        is_full = False
        try:
            is_full = reading.fill(cursor, lines, budget)
        finally:
            if is_full and self._kept is not None:
                self._kept.keep((container.id, self._streams, cursor.text()), reading)
            else:
                reading.close()
        if is_full:
            if resumed is None and not ended:  # an engine sends what is written meanwhile, too
                reading.newest = self._newest(container)
            return Reached.ASKED if 0 < reading.newest < lines[-1].time else Reached.FULL
        if resumed is not None and not (reading.ended and reading.is_whole):
            # asked for while the container ran, or broken off: what comes after it is asked for
            # anew
            if len(lines) == before:
                return self._read(container, cursor, lines, budget, ended, final, start)
            return Reached.ASKED if reading.is_whole else Reached.FULL
        if not reading.is_whole:
            raise SchedulerUnavailable(
                f"docker engine {self._engine.url}: the connection broke while reading a log"
            )
        if ended:
            for line in (line for reader in reading.readers for line in reader.rest()):
                cursor.take(line)
                if not final:
                    line.text += "\n"  # the next attempt begins a line of its own
                lines.append(line)
        return Reached.END

    def _newest(self, container: Container) -> int:
        """Return the time of the newest message of a container, in nanoseconds; 0: it has none."""
        reader = Reader(self._engine, container.id, (STDOUT, STDERR), Cursor(), tail=1)
        with closing(reader):
            next(reader.lines(), None)
        return reader.first

    def _ask(self, container: Container, cursor: Cursor, start: int, ended: bool) -> Reading:
        """Ask for a container's log from a place on."""
        # each stream by itself: what one lags behind the other is not missed
        readers: list[Reader] = []
        try:
            for stream in self._streams:
                readers.append(Reader(self._engine, container.id, (stream,), cursor, start=start))
        except BaseException:
            for reader in readers:
                reader.close()
            raise
        return Reading(readers, ended)

    def log_page(self) -> LogPage:
        """Return the next page; never blocks. The engine passes over what lies before ``since`` or
        the last lines.
        """
        query = self._query
        place = Cursor.of(query.cursor)
        if query.last is not None and query.cursor is None:
            piece = Piece(
                self._last(place, query.last), left=None
            )  # an unfinished last line may come behind them
        else:
            piece = self.page(place, max(1, query.max_bytes), int((query.since or 0) * NS))
        stamps = [(index, line.time / NS) for index, line in enumerate(piece.lines)]
        text = [line.text for line in piece.lines]
        return LogPage(text, place.text(), piece.complete, stamps=stamps, left=piece.left)

    def _last(self, place: Cursor, count: int) -> list[Line]:
        """Return at least the last whole lines; the cursor is moved behind them."""
        lines: list[Line] = []
        attempts = self._attempts(self._facts())
        for container in reversed(attempts):
            newest = container is attempts[-1]
            lines[:0] = self._tail(
                container, count - len(lines), place if newest else Cursor(), ended=not newest
            )
            if len(lines) >= count:
                break
        return lines

    def _tail(self, container: Container, count: int, place: Cursor, *, ended: bool) -> list[Line]:
        """Return at least the last whole lines of one attempt: few messages are asked for, then
        twice as many.
        """
        place.next_attempt(container.attempt)
        wanted = count + 2
        while container.status != "created":
            # both streams: only so the number of messages tells whether there are more before them
            reader = Reader(self._engine, container.id, (STDOUT, STDERR), place, tail=wanted)
            with closing(reader):
                lines = []
                for line in reader.lines():
                    lines.append(line)
                    if reader.messages >= wanted:  # what comes now was written meanwhile
                        break
                if not reader.at_end and reader.messages < wanted:
                    raise SchedulerUnavailable(
                        f"docker engine {self._engine.url}: the connection broke"
                    )
                if ended:
                    lines += [replace(line, text=f"{line.text}\n") for line in reader.rest()]
            is_cut = reader.messages >= wanted
            mine = [line for line in lines if line.stream in self._streams]
            if is_cut:  # the first line of each stream may lack its beginning
                mine = [
                    line
                    for line in mine
                    if line is not next(each for each in mine if each.stream == line.stream)
                ]
            latest = {line.stream: line for line in mine}.values()
            # how many messages of one time came before the last line can be told if its time began
            # within the window
            if not is_cut or (
                len(mine) >= count and all(line.place.time > reader.first for line in latest)
            ):
                for line in mine:
                    place.take(line)
                return sorted(mine, key=lambda line: line.time)
            wanted *= 2
        return []
