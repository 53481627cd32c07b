"""Read the logs of a replica from an engine as whole lines, each once, from any point on.

An engine gives a log as messages. Each is a line, or a piece of a long one, with the time at which
it was taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from transload.errors import SchedulerUnavailable, SpecError
from transload.schedulers.api import Stream
from transload.schedulers.timed_log import NS, Place, TimedLog, nanoseconds
from transload_docker.engine import Engine, EngineError

STDOUT: Final = 1
STDERR: Final = 2
NUMBERS: Final = {
    Stream.STDOUT: (STDOUT,),
    Stream.STDERR: (STDERR,),
    Stream.COMBINED: (STDOUT, STDERR),
}
# The two streams of a container are timed by two threads of the engine: on a busy machine one may
# lag behind the other.
_DISORDER_NS: Final = 10 * NS
_BLOCK: Final = 1 << 16
_HEADER: Final = 8


@dataclass(slots=True)
class Cursor:
    """A place in the log of a replica.

    Args:
        attempt: which attempt of the replica.
        places: the place in stdout and in stderr.
    """

    attempt: int = 0
    places: dict[int, Place] = field(default_factory=lambda: {STDOUT: Place(), STDERR: Place()})

    def text(self) -> str:
        """Return the cursor as text."""
        out = self.places[STDOUT]
        err = self.places[STDERR]
        return f"{self.attempt}:{out.time}.{out.count}:{err.time}.{err.count}"

    @staticmethod
    def of(text: str | None) -> Cursor:
        """Read what `text` returned. None is the beginning.

        Raises:
            SpecError: if it is not a cursor.
        """
        if text is None:
            return Cursor()
        try:
            attempt, *places = text.split(":")
            out, err = (Place(*map(int, place.split(".", 1))) for place in places if "." in place)
            return Cursor(int(attempt), {STDOUT: out, STDERR: err})
        except (TypeError, ValueError) as exc:
            raise SpecError(f"log cursor {text!r}: is not one that this scheduler gave") from exc

    def next_attempt(self, attempt: int) -> None:
        """Go to the beginning of an attempt."""
        self.attempt = attempt
        self.places = {STDOUT: Place(), STDERR: Place()}

    def take(self, line: Line) -> None:
        """Go on behind a line."""
        self.places[line.stream] = line.place

    def since(self, streams: tuple[int, ...]) -> int:
        """Return a time before which there is nothing to read, in nanoseconds, or 0 to read all.

        It is exact for one stream. Of two, the one of which nothing was read for long may hold
        something older, were it to lag behind by more than ten seconds.
        """
        latest = max(self.places[stream].time for stream in streams)
        return min(max(self.places[stream].time, latest - _DISORDER_NS, 0) for stream in streams)


@dataclass(slots=True)
class Line:
    """One line of stdout or stderr, newline included unless it is the unfinished last one.

    ``time`` is when its beginning was written, in nanoseconds since the epoch. ``place`` is the
    place behind it.
    """

    text: str
    time: int
    size: int
    stream: int
    place: Place


class Reader:
    """Reads lines of one container from a cursor on, which moves behind each line that is taken.

    Args:
        streams: which of stdout and stderr.
        cursor: where to begin.
        start: nothing before this time, nanoseconds since the epoch.
        tail: only this many last messages (of any stream), or None for all.
    """

    def __init__(
        self,
        engine: Engine,
        container_id: str,
        streams: tuple[int, ...],
        cursor: Cursor,
        *,
        start: int = 0,
        tail: int | None = None,
    ) -> None:
        self._logs = {stream: TimedLog(cursor.places[stream], start) for stream in streams}
        self._parts: dict[int, list[bytes]] = {stream: [] for stream in streams}
        self._began = dict.fromkeys(streams, 0)
        self._engine = engine
        self._response = self._open(container_id, streams, max(cursor.since(streams), start), tail)
        self.at_end = False
        self.messages = self.first = 0

    def _open(
        self, container_id: str, streams: tuple[int, ...], since: int, tail: int | None
    ) -> Any:
        params: dict[str, Any] = {
            "stdout": int(STDOUT in streams),
            "stderr": int(STDERR in streams),
            "timestamps": 1,
            "follow": 0,
            "tail": "all" if tail is None else tail,
        }
        if since:
            params["since"] = f"{since // NS}.{since % NS:09d}"

        def ask(api: Any) -> Any:
            response = api._get(
                api._url("/containers/{0}/logs", container_id),
                params=params,
                stream=True,
                timeout=None,
            )
            api._raise_for_status(response)
            return response

        try:
            return self._engine.call(ask, again=True)
        except EngineError as exc:
            raise SchedulerUnavailable(
                f"docker engine {self._engine.url}: no log of {container_id[:12]}: {exc}"
            ) from exc

    def close(self) -> None:
        """Close the connection."""
        self._response.close()

    def lines(self) -> Iterator[Line]:
        """Yield whole lines. ``at_end`` is True afterwards unless the connection broke."""
        for stream, payload in self._messages():
            stamp, _, data = payload.partition(b" ")
            moment = nanoseconds(stamp.decode("ascii"))
            self.messages += 1
            self.first = self.first or moment
            log = self._logs.get(stream)
            if log is not None and log.take(moment):
                yield from self._take(stream, moment, data)

    def _take(self, stream: int, moment: int, data: bytes) -> Iterator[Line]:
        parts = self._parts[stream]
        if not parts:
            self._began[stream] = moment
        parts.append(data)
        if data.endswith(b"\n"):
            yield self._line(stream)

    def _line(self, stream: int) -> Line:
        data = b"".join(self._parts[stream])
        self._parts[stream].clear()
        text = data.decode("utf-8", "replace")
        return Line(text, self._began[stream], len(data), stream, self._logs[stream].place.copy())

    def rest(self) -> Iterator[Line]:
        """Yield the unfinished last line of each stream, once the container has ended."""
        for stream, parts in self._parts.items():
            if parts:
                yield self._line(stream)

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield ``(stream, bytes)`` of each frame, however the engine cut them into blocks."""
        import http.client

        import requests
        import urllib3  # type: ignore[import-untyped,unused-ignore]

        raw = self._response.raw
        read = getattr(raw, "read1", None) or raw.read
        buffer = bytearray()
        try:
            while True:
                block = read(_BLOCK)
                if not block:
                    break
                buffer += block
                position = 0
                while len(buffer) - position >= _HEADER:
                    length = int.from_bytes(buffer[position + 4 : position + _HEADER], "big")
                    end = position + _HEADER + length
                    if len(buffer) < end:
                        break
                    yield buffer[position], bytes(buffer[position + _HEADER : end])
                    position = end
                del buffer[:position]
        except (
            OSError,
            http.client.HTTPException,
            urllib3.exceptions.HTTPError,
            requests.RequestException,
            ValueError,
        ):
            return  # broken off: the reader is not at the end
        self.at_end = True
