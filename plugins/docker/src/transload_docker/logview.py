"""The log of a replica over all its attempts: pages, and following."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from heapq import merge
from typing import Final

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError
from transload.schedulers import line_search
from transload.schedulers.api import LogPage, Stream
from transload_docker.engine import Engine
from transload_docker.judge import is_alive, may_run_again
from transload_docker.logs import NUMBERS, Cursor, Line, Reader
from transload_docker.plan import Container, Facts
from transload_docker.watch import EngineWatch

_PATIENCE_S: Final = 60.0
_LOOK_AGAIN_S: Final = 5.0
_PAGE: Final = 1 << 20


class LogView:
    """The log of one replica.

    Args:
        engine: the engine.
        app_id: the app.
        role: name of the role.
        k: number of the replica.
        stream: which output.
        facts: returns what is known of the app.

    Raises:
        AppNotFound: if there is no such app.
        SpecError: for an unknown role or replica.
    """

    def __init__(
        self, engine: Engine, app_id: str, role: str, k: int, stream: Stream, facts: Callable[[], Facts]
    ) -> None:
        self._engine = engine
        self._app_id = app_id
        self._role = role
        self._k = k
        self._streams = NUMBERS[Stream(stream)]
        self._facts = facts
        self._check(facts())

    def _check(self, facts: Facts) -> None:
        if facts.plan is None:
            raise AppNotFound(self._app_id)
        roles = {role.name: role.num_replicas for role in facts.plan.roles}
        if self._role not in roles:
            known = ", ".join(sorted(roles))
            raise SpecError(f"role {self._role!r}: app {self._app_id} has no such role; it has: {known}")
        if isinstance(self._k, bool) or not isinstance(self._k, int) or not 0 <= self._k < roles[self._role]:
            raise SpecError(f"replica {self._k!r}: role {self._role!r} has the replicas 0 to {roles[self._role] - 1}")

    def _attempts(self, facts: Facts) -> list[Container]:
        mine = [c for c in facts.containers if (c.role, c.replica) == (self._role, self._k)]
        return sorted(mine, key=lambda c: c.attempt)

    def page(self, cursor: Cursor, max_bytes: int, start: int = 0) -> tuple[list[Line], bool]:
        """Return lines from ``cursor`` on, which is moved, and whether there will never be more.

        Args:
            cursor: where to begin.
            max_bytes: about how much to read.
            start: nothing before this time, nanoseconds since the epoch.

        Raises:
            AppNotFound: if the app has been deleted.
            SchedulerUnavailable: if the engine cannot be reached.
        """
        facts = self._facts()
        self._check(facts)
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

    def log_page(self, cursor: str | None, max_bytes: int) -> LogPage:
        """Return the next page; never blocks."""
        place = Cursor.of(cursor)
        lines, complete = self.page(place, max(1, max_bytes))
        return LogPage([line.text for line in lines], place.text(), complete)

    def iterate(self, regex: str | None, since: int | None, until: int | None, tail: bool) -> Iterator[str]:
        """Return an iterator over lines.

        Args:
            regex: only lines in which it is found.
            since: only lines written at or after this time, nanoseconds since the epoch.
            until: only lines written before this time.
            tail: follow until the replica has ended.

        Raises:
            SpecError: for a bad regex.
        """
        wanted = line_search(regex)
        return (line.text for line in self._lines(since or 0, until, tail) if wanted(line.text))

    def _lines(self, since: int, until: int | None, tail: bool) -> Iterator[Line]:
        for line in self._follow(since) if tail else self._present(since):
            if line.time < since:
                continue
            if until is not None and line.time >= until:
                if line.time >= until + 1_000_000_000:
                    return  # the streams are not in order to the nanosecond, but they are to the second
                continue
            yield line

    def _present(self, since: int) -> Iterator[Line]:
        cursor = Cursor()
        while True:
            before = cursor.text()
            lines, complete = self.page(cursor, _PAGE, since)
            yield from lines
            if complete or cursor.text() == before or not lines:
                return

    def _follow(self, since: int) -> Iterator[Line]:
        cursor = Cursor()
        watch: EngineWatch | None = None
        broken_since: float | None = None
        try:
            while True:
                try:
                    lines, complete = self.page(cursor, _PAGE, since)
                    yield from lines
                    if complete:
                        return
                    live = None if lines else self._live(cursor)
                    if live is not None:
                        yield from self._live_lines(live, cursor, since)
                    elif not lines:
                        if watch is None:
                            watch = EngineWatch(self._engine)
                            watch.update([self._app_id])
                        watch.wait(_LOOK_AGAIN_S)
                    broken_since = None
                except AppNotFound:
                    return  # deleted while it was followed
                except SchedulerUnavailable:
                    now = time.monotonic()
                    broken_since = broken_since or now
                    if now - broken_since > _PATIENCE_S:
                        raise
                    time.sleep(0.2)  # nobody tells when an engine comes back
        finally:
            if watch is not None:
                watch.close()

    def _live(self, cursor: Cursor) -> Container | None:
        for container in self._attempts(self._facts()):
            if container.attempt == cursor.attempt and is_alive(container):
                return container
        return None

    def _live_lines(self, container: Container, cursor: Cursor, since: int) -> Iterator[Line]:
        """Yield lines as they are written, until the container ends or the connection breaks."""
        reader = Reader(self._engine, container.id, self._streams, cursor, follow=True, start=since)
        try:
            for line in reader.lines():
                cursor.take(line)
                yield line
        finally:
            reader.close()
