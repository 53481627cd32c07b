"""The log of a replica over all its attempts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from heapq import merge

from transload.errors import SchedulerUnavailable
from transload.schedulers.api import LogPage, Stream, check_replica
from transload_docker.engine import Engine
from transload_docker.judge import is_alive, may_run_again
from transload_docker.logs import NS, NUMBERS, STDERR, STDOUT, Cursor, Line, Reader
from transload_docker.plan import Container, Facts


class LogView:
    """The log of one replica; ``facts`` returns what is known of its app. Errors as in `check_replica`."""

    def __init__(
        self, engine: Engine, app_id: str, role: str, k: int, stream: Stream, facts: Callable[[], Facts]
    ) -> None:
        self._engine = engine
        self._app_id = app_id
        self._role = role
        self._k = k
        self._streams = NUMBERS[Stream(stream)]
        self._look = facts
        self._facts()

    def _facts(self) -> Facts:
        """Return what is known of the app, which has that replica."""
        facts = self._look()
        plan = facts.plan
        replicas = None if plan is None else {role.name: role.num_replicas for role in plan.roles}
        check_replica(self._app_id, replicas, self._role, self._k)
        return facts

    def _attempts(self, facts: Facts) -> list[Container]:
        mine = [c for c in facts.containers if (c.role, c.replica) == (self._role, self._k)]
        mine.sort(key=lambda c: c.attempt)
        return [c for c in mine if c.status != "created" or c is mine[-1]]  # one that could not be started has no log

    def page(self, cursor: Cursor, max_bytes: int, start: int = 0) -> tuple[list[Line], bool]:
        """Return about ``max_bytes`` of lines from ``cursor`` on, which is moved, and whether there will never be more.

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
                return lines, not again
            ended = not is_alive(container)
            final = number + 1 == len(attempts) and not again
            if not self._read(container, cursor, lines, max_bytes, ended, final, start) or not ended:
                return lines, False
        return lines, not again

    def _read(
        self, container: Container, cursor: Cursor, lines: list[Line], budget: int, ended: bool, final: bool, start: int
    ) -> bool:
        """Read one attempt; True if its present end was reached."""
        used = sum(line.size for line in lines)
        with ExitStack() as stack:
            # each stream by itself: what one lags behind the other is not missed
            readers = [
                stack.enter_context(closing(Reader(self._engine, container.id, (stream,), cursor, start=start)))
                for stream in self._streams
            ]
            for line in merge(*(reader.lines() for reader in readers), key=lambda line: line.time):
                cursor.take(line)
                lines.append(line)
                used += line.size
                if used >= budget:
                    return False
            if not all(reader.at_end for reader in readers):
                raise SchedulerUnavailable(
                    f"docker engine {self._engine.url}: the connection broke while reading a log"
                )
            if ended:
                for line in (line for reader in readers for line in reader.rest()):
                    cursor.take(line)
                    if not final:
                        line.text += "\n"  # the next attempt begins a line of its own
                    lines.append(line)
            return True

    def log_page(self, cursor: str | None, max_bytes: int, since: float | None, last: int | None) -> LogPage:
        """Return the next page; never blocks. The engine passes over what lies before ``since`` or the last lines."""
        place = Cursor.of(cursor)
        if last is not None and cursor is None:
            lines, complete = self._last(place, last), False
        else:
            lines, complete = self.page(place, max(1, max_bytes), int((since or 0) * NS))
        stamps = [(index, line.time / NS) for index, line in enumerate(lines)]
        return LogPage([line.text for line in lines], place.text(), complete, stamps=stamps)

    def _last(self, place: Cursor, count: int) -> list[Line]:
        """Return at least the last whole lines; the cursor is moved behind them."""
        lines: list[Line] = []
        attempts = self._attempts(self._facts())
        for container in reversed(attempts):
            newest = container is attempts[-1]
            lines[:0] = self._tail(container, count - len(lines), place if newest else Cursor(), ended=not newest)
            if len(lines) >= count:
                break
        return lines

    def _tail(self, container: Container, count: int, place: Cursor, *, ended: bool) -> list[Line]:
        """Return at least the last whole lines of one attempt: few messages are asked for, then twice as many."""
        place.next_attempt(container.attempt)
        wanted = count + 2
        while container.status != "created":
            # both streams: only so the number of messages tells whether there are more before them
            reader = Reader(self._engine, container.id, (STDOUT, STDERR), place, tail=wanted)
            with closing(reader):
                lines = list(reader.lines())
                if not reader.at_end:
                    raise SchedulerUnavailable(f"docker engine {self._engine.url}: the connection broke")
                if ended:
                    lines += [replace(line, text=f"{line.text}\n") for line in reader.rest()]
            is_cut = reader.messages >= wanted
            mine = [line for line in lines if line.stream in self._streams]
            if is_cut:  # the first line of each stream may lack its beginning
                mine = [line for line in mine if line is not next(each for each in mine if each.stream == line.stream)]
            latest = {line.stream: line for line in mine}.values()
            # how many messages of one time came before the last line can be told if its time began within the window
            if not is_cut or (len(mine) >= count and all(line.place.time > reader.first for line in latest)):
                for line in mine:
                    place.take(line)
                return sorted(mine, key=lambda line: line.time)
            wanted *= 2
        return []
