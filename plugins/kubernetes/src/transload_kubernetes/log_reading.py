"""Read the log of a pod by one request, and remember places in logs.

A cluster returns the log of a pod as lines with stdout and stderr merged, each with its time. So a
place in the log of a replica is a pod and a place in its log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from transload.errors import SpecError
from transload.schedulers.timed_log import NS, Place, TimedLog, nanoseconds
from transload_kubernetes import names
from transload_kubernetes.cluster import Cluster, cut

_BLOCK: Final = 1 << 16

Line = tuple[str, int]
"""A line, and the time when it was written, in nanoseconds since the epoch."""


@dataclass(slots=True)
class Cursor:
    """A place in the log of a replica.

    Attributes:
        pod: the name of the pod, or ``""`` for the place before the first pod.
        place: the place in its log.
    """

    pod: str = ""
    place: Place = field(default_factory=Place)

    def enter(self, pod: dict[str, Any]) -> None:
        """Go to the beginning of a pod's log, unless this is a place in it."""
        name = pod["metadata"]["name"]
        if self.pod != name:
            self.pod = name
            self.place = Place()

    def pass_over(self, lines: list[Line]) -> None:
        """Move past lines that follow this place."""
        self.place.pass_over([moment for _, moment in lines])

    def copy(self) -> Cursor:
        """Return a copy of this cursor."""
        return Cursor(self.pod, self.place.copy())

    def text(self) -> str:
        """Return the cursor as text."""
        return f"{self.pod}:{self.place.time}:{self.place.count}"

    @staticmethod
    def of(text: str | None) -> Cursor:
        """Parse what `text` returned. None means the beginning.

        Raises:
            SpecError: if it is not a cursor.
        """
        if text is None:
            return Cursor()
        try:
            pod, moment, count = text.split(":")
            return Cursor(pod, Place(int(moment), int(count)))
        except ValueError as exc:
            raise SpecError(
                f"log cursor {text!r}: must be one that this scheduler has returned"
            ) from exc


class Reading:
    """A request for the log of a pod, from a place on.

    Args:
        cluster: the cluster.
        namespace: that of the pod.
        place: the place to start from.
        over: whether its program has ended, so that a last line without a newline is complete.
        since: the time from which on lines are wanted, in nanoseconds since the epoch.
        tail: the number of last lines to start with, or None to start with the first line.
        follow: go on until the container ends.

    Attributes:
        pieces: complete lines as they arrive, until the log ends or the connection breaks.
        broken: whether the connection broke.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        place: Cursor,
        *,
        over: bool = False,
        since: int = 0,
        tail: int | None = None,
        follow: bool = False,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._pod = place.pod
        self._log = TimedLog(place.place, since)
        self._over = over
        self._since = _api_time(max(place.place.time, since))
        self._tail = tail
        self._follow = follow
        self._response: Any = None
        self._left: list[Line] = []  # lines that have arrived and were not read yet
        self._closed = False
        self._ended = False
        self.broken = False
        self.pieces = self._read_pieces()

    @property
    def is_over(self) -> bool:
        """Whether no more lines will arrive."""
        return self._ended and not self._left

    @property
    def is_all(self) -> bool:
        """Whether it returned all lines that existed when it was sent.

        False for a pod that had ended, because another pod may follow it.
        """
        return self.is_over and not self.broken and not self._over

    def read(self, max_bytes: int | None = None) -> list[Line]:
        """Return the next lines, about ``max_bytes`` of them, or with None all."""
        taken: list[Line] = []
        size = 0
        while max_bytes is None or size < max_bytes:
            lines = self._left or next(self.pieces, [])
            self._left = []
            if not lines:
                break
            if max_bytes is not None:
                lines, self._left = split(lines, max_bytes - size)
            taken += lines
            size += size_of(lines)
        return taken

    def close(self) -> None:
        """End the request, even while another thread reads it."""
        self._closed = True
        if self._response is not None:
            cut(self._response)

    def _read_pieces(self) -> Iterator[list[Line]]:
        """Yield the lines of `pieces`."""
        from urllib3.exceptions import HTTPError

        begun: list[bytes] = []  # the part of a line whose end has not arrived yet
        try:
            self._response = self._cluster.log(
                self._namespace,
                self._pod,
                names.MAIN,
                timestamps=True,
                since=self._since,
                tail=self._tail,
                follow=self._follow,
            )
            if self._response is None or self._closed:
                return
            blocks = iter(partial(self._response.read, _BLOCK), b"")
            if self._follow:  # each line at once
                blocks = self._response.stream(_BLOCK)
            for data in blocks:
                whole, newline, rest = data.rpartition(b"\n")
                if not newline:
                    begun.append(data)
                    continue
                lines = self._new_lines(b"".join([*begun, whole]), "\n")
                begun = [rest]
                if lines:
                    yield lines
            if self._over and any(begun):
                lines = self._new_lines(b"".join(begun), "")
                if lines:
                    yield lines
        except (HTTPError, OSError, AttributeError):  # the connection broke, or was closed here
            self.broken = not self._closed
        finally:
            self._ended = True
            self.close()

    def _new_lines(self, data: bytes, end: str) -> list[Line]:
        """Return the lines after the place where the reading started, each with this line end."""
        taken: list[Line] = []
        for line in data.decode("utf-8", "replace").split("\n"):
            stamp, _, text = line.partition(" ")
            try:
                moment = nanoseconds(stamp)
            except ValueError:  # the server's reason for having no log
                continue
            if self._log.take(moment):
                taken.append((text + end, moment))
        return taken


def last_moment(log: bytes) -> bytes:
    """Return the lines of a log's last second, without their time stamps."""
    lines = [line.partition(b" ") for line in log.splitlines(keepends=True)]
    found: list[bytes] = []
    end = None
    for stamp, _, line in reversed(lines):
        try:
            moment = nanoseconds(stamp.decode("ascii", "replace"))
        except ValueError:
            continue
        if end is None:
            end = moment
        if end - moment > NS:
            break
        found.append(line)
    return b"".join(reversed(found))


def size_of(lines: list[Line]) -> int:
    """Return the number of characters in lines."""
    return sum(len(line) for line, _ in lines)


def split(lines: list[Line], size: int) -> tuple[list[Line], list[Line]]:
    """Split lines after about ``size`` characters, but not before the end of the first line."""
    for index, (line, _) in enumerate(lines, 1):
        size -= len(line)
        if size <= 0:
            return lines[:index], lines[index:]
    return lines, []


def _api_time(moment: int) -> str | None:
    """Convert a time to the API's form, in whole seconds, or to None for the epoch itself.

    The server compares it with its own time stamps. Lines of the same second that are too early are
    left out when they are read.
    """
    seconds = moment // NS
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
