"""The log of a replica over all its attempts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum
from heapq import merge
from typing import Final

from transload.errors import SchedulerUnavailable
from transload.schedulers import OpenReadings
from transload.schedulers.api import LogPage, LogQuery
from transload.schedulers.timed_log import NS
from transload_docker import states
from transload_docker.engine import Box, Engine
from transload_docker.logs import NUMBERS, STDERR, STDOUT, Cursor, Line, Reader

MAX_OPEN: Final = 32
"""How many readings are kept open from one page to the next."""

Key = tuple[str, tuple[int, ...], str]
"""Id of a container, streams, and the place where a reading goes on."""


class Reached(Enum):
    """Where the reading of a container's log has stopped."""

    FULL = "there may be more: enough was read, or the connection broke"
    ASKED = "the end of what was there when it was asked for"
    END = "the end of what is there"


@dataclass(slots=True)
class Piece:
    """Lines of the log of a replica.

    Args:
        lines: the lines.
        complete: there will never be more.
        left: bytes behind them, or None if that is not known.
    """

    lines: list[Line]
    complete: bool = False
    left: int | None = 0


@dataclass(slots=True)
class Reading:
    """Requests for the streams of one container's log.

    Args:
        readers: one for each stream.
        ended: the container had ended when they were sent, so that nothing comes after them.
        newest: the time of the newest message when they were sent, in nanoseconds, or 0 if it is
            not known.

    Attributes:
        lines: the lines that they bring, in order of time.
    """

    readers: list[Reader]
    ended: bool
    newest: int = 0
    lines: Iterator[Line] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = merge(*(reader.lines() for reader in self.readers), key=lambda line: line.time)

    @property
    def is_whole(self) -> bool:
        """Whether all of it was read, without a connection that broke."""
        return all(reader.at_end for reader in self.readers)

    def fill(self, cursor: Cursor, lines: list[Line], budget: int) -> bool:
        """Add lines of about ``budget`` bytes, and move the cursor.

        Lines that were written after the newest message are not waited for.

        Returns:
            Whether there may be more.
        """
        used = sum(line.size for line in lines)
        for line in self.lines:
            cursor.take(line)
            lines.append(line)
            used += line.size
            if used >= budget or 0 < self.newest < line.time:
                return True
        return False

    def close(self) -> None:
        """Close the connections."""
        for reader in self.readers:
            reader.close()


class LogView:
    """One request for the log of one replica.

    Args:
        engine: the engine of the job.
        app_id: the job.
        query: the wanted part.
        ended: the job had ended *before* this, so that no attempt follows.
        kept: holds what goes on from page to page, or None if nothing does.
    """

    def __init__(
        self,
        engine: Engine,
        app_id: str,
        query: LogQuery,
        *,
        ended: bool,
        kept: OpenReadings[Key, Reading] | None = None,
    ) -> None:
        self._kept = kept
        self._engine = engine
        self._app_id = app_id
        self._query = query
        self._streams = NUMBERS[query.stream]
        self._ended = ended

    def _attempts(self) -> list[Box]:
        """Return the containers of the replica, oldest first.

        Of those that could not be started, which have no log, only the last one counts.
        """
        mine = self._engine.boxes(
            app_id=self._app_id, role=self._query.role, replica=str(self._query.replica)
        )
        mine.sort(key=lambda box: box.attempt)
        return [box for box in mine if box.status != "created" or box is mine[-1]]

    def page(self, cursor: Cursor, max_bytes: int, start: int = 0) -> Piece:
        """Return about ``max_bytes`` of lines from ``cursor`` on, which is moved.

        Nothing before ``start`` (nanoseconds since the epoch) is wanted.

        Raises:
            SchedulerUnavailable: if the engine cannot be reached.
        """
        lines: list[Line] = []
        attempts = [box for box in self._attempts() if box.attempt >= cursor.attempt]
        may_follow = not self._ended
        for container in attempts:
            if container.attempt > cursor.attempt:
                cursor.next_attempt(container.attempt)
            if container.status == "created":
                break
            is_last = container is attempts[-1]
            # the end of its last line is not known before another attempt follows, or none will
            ended = container.status not in states.ALIVE and not (is_last and may_follow)
            is_final = is_last and not may_follow
            reached = self._read(
                container, cursor, lines, max_bytes, ended=ended, is_final=is_final, start=start
            )
            if reached is Reached.FULL:
                return Piece(lines, left=None)
            if reached is Reached.ASKED or not ended:
                return Piece(lines)
        return Piece(lines, complete=not may_follow)

    def _read(
        self,
        container: Box,
        cursor: Cursor,
        lines: list[Line],
        budget: int,
        *,
        ended: bool,
        is_final: bool,
        start: int = 0,
    ) -> Reached:
        """Read one attempt.

        Args:
            container: that of the attempt.
            cursor: where to begin, which is moved.
            lines: what is read is added to them.
            budget: how many bytes they may have, about.
            ended: whether the container has ended.
            is_final: whether no attempt will come after this one.
            start: nothing before this time is wanted, in nanoseconds since the epoch.
        """
        resumed = None
        if self._kept is not None:
            resumed = self._kept.take(self._key(container, cursor))
        reading = resumed
        if reading is None:
            reading = self._ask(container, cursor, start, ended=ended)
        count = len(lines)
        is_full = False
        try:
            is_full = reading.fill(cursor, lines, budget)
        finally:
            if is_full and self._kept is not None:
                self._kept.keep(self._key(container, cursor), reading)
            else:
                reading.close()
        if is_full:
            if resumed is None and not ended:
                # an engine also sends what is written in the meantime
                reading.newest = self._newest(container)
            is_newer = 0 < reading.newest < lines[-1].time
            return Reached.ASKED if is_newer else Reached.FULL
        if resumed is not None and not (reading.ended and reading.is_whole):
            # it was sent while the container ran, or it broke: what follows is asked for anew
            if len(lines) == count:
                return self._read(
                    container, cursor, lines, budget, ended=ended, is_final=is_final, start=start
                )
            return Reached.ASKED if reading.is_whole else Reached.FULL
        if not reading.is_whole:
            raise SchedulerUnavailable(
                f"docker engine {self._engine.url}: the connection broke while reading a log"
            )
        if ended:
            _add_unfinished(reading, cursor, lines, is_final=is_final)
        return Reached.END

    def _key(self, container: Box, cursor: Cursor) -> Key:
        """Return the place at which a reading of a container goes on."""
        return container.id, self._streams, cursor.text()

    def _newest(self, container: Box) -> int:
        """Return the time of a container's newest message, in nanoseconds, or 0 if it has none."""
        reader = Reader(self._engine, container.id, (STDOUT, STDERR), Cursor(), tail=1)
        with closing(reader):
            next(reader.lines(), None)
        return reader.first

    def _ask(self, container: Box, cursor: Cursor, start: int, *, ended: bool) -> Reading:
        """Ask for a container's log from a place on.

        Each stream is asked for by itself, so that nothing is missed of one that lags behind.
        """
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
        """Return the next page, without waiting for more of the log.

        The engine passes over what lies before ``since`` or the last lines.
        """
        query = self._query
        place = Cursor.of(query.cursor)
        if query.last is not None and query.cursor is None:
            piece = self._last(place, query.last)
        else:
            start = int((query.since or 0) * NS)
            piece = self.page(place, max(1, query.max_bytes), start)
        stamps = [(index, line.time / NS) for index, line in enumerate(piece.lines)]
        text = [line.text for line in piece.lines]
        return LogPage(text, place.text(), piece.complete, stamps=stamps, left=piece.left)

    def _last(self, place: Cursor, count: int) -> Piece:
        """Return at least the last whole lines, and move the cursor behind them.

        Nothing is left behind them if the replica runs. Else an unfinished last line may be.
        """
        lines: list[Line] = []
        attempts = self._attempts()
        runs = bool(attempts) and attempts[-1].status in states.ALIVE
        for container in reversed(attempts):
            is_newest = container is attempts[-1]
            at = place if is_newest else Cursor()
            wanted = count - len(lines)
            lines[:0] = self._last_of_attempt(container, wanted, at, ended=not is_newest)
            if len(lines) >= count:
                break
        return Piece(lines, left=0 if runs else None)

    def _last_of_attempt(
        self, container: Box, count: int, place: Cursor, *, ended: bool
    ) -> list[Line]:
        """Return at least the last whole lines of one attempt, and move the cursor behind them.

        It asks for few messages, then for twice as many, until the place is known. The number of
        messages of one time is known once an earlier message is among them.
        """
        place.next_attempt(container.attempt)
        if container.status == "created":
            return []
        wanted = count + 2
        while True:
            tail = self._tail(container, place, wanted, ended=ended)
            mine = [line for line in tail.lines if line.stream in self._streams]
            if tail.is_cut:
                mine = _without_first_of_each_stream(mine)
            latest = {line.stream: line for line in mine}.values()
            is_known = all(line.place.time > tail.first for line in latest)
            if not tail.is_cut or (len(mine) >= count and is_known):
                for line in mine:
                    place.take(line)
                return sorted(mine, key=lambda line: line.time)
            wanted *= 2

    def _tail(self, container: Box, place: Cursor, wanted: int, *, ended: bool) -> _Tail:
        """Return the last messages of a container as lines.

        Both streams are asked for: only then the number of messages says whether there are more.
        """
        lines: list[Line] = []
        reader = Reader(self._engine, container.id, (STDOUT, STDERR), place, tail=wanted)
        with closing(reader):
            for line in reader.lines():
                lines.append(line)
                if reader.messages >= wanted:
                    break  # what follows was written in the meantime
            is_cut = reader.messages >= wanted
            if not reader.at_end and not is_cut:
                raise SchedulerUnavailable(
                    f"docker engine {self._engine.url}: the connection broke"
                )
            if ended:
                lines += [replace(line, text=f"{line.text}\n") for line in reader.rest()]
        return _Tail(lines, reader.first, is_cut=is_cut)


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last messages of a container as lines.

    Args:
        lines: the lines.
        first: the time of the first message, in nanoseconds since the epoch.
        is_cut: whether there may be more before them, so that first lines lack their beginnings.
    """

    lines: list[Line]
    first: int
    is_cut: bool


def _without_first_of_each_stream(lines: list[Line]) -> list[Line]:
    """Return lines without the first of stdout and the first of stderr."""
    seen: set[int] = set()
    found: list[Line] = []
    for line in lines:
        if line.stream in seen:
            found.append(line)
        seen.add(line.stream)
    return found


def _add_unfinished(reading: Reading, cursor: Cursor, lines: list[Line], *, is_final: bool) -> None:
    """Add the unfinished last lines of a container that has ended, moving the cursor."""
    for reader in reading.readers:
        for line in reader.rest():
            cursor.take(line)
            if not is_final:
                line.text += "\n"  # the next attempt begins a line of its own
            lines.append(line)
