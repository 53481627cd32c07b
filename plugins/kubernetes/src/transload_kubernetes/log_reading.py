"""One request for the log of a pod, and places in logs.

A cluster gives the log of a pod as lines with the time at which each was taken, stdout and stderr
merged. Times never run backwards, so "the pod, the time of the last line read, and how many of that
time" is a place in the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final

from transload.errors import SpecError
from transload_kubernetes import names
from transload_kubernetes.cluster import Cluster, cut

NS: Final = 1_000_000_000
"""Nanoseconds of a second."""
_BLOCK: Final = 1 << 16
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)")
_SECOND: Final = len("2026-11-25T12:00:00")

Line = tuple[str, int]
"""A line, and when it was written: nanoseconds since the epoch."""


@dataclass(slots=True)
class Cursor:
    """A place in the log of a replica.

    Attributes:
        pod: the name of the pod; ``""`` is the place before the first pod.
        time: the time of the last line read, in nanoseconds since the epoch.
        count: how many lines of exactly that time were read.
    """

    pod: str = ""
    time: int = 0
    count: int = 0

    def enter(self, pod: dict[str, Any]) -> None:
        """Go to the beginning of a pod's log, unless this is a place in it."""
        name = pod["metadata"]["name"]
        if self.pod != name:
            self.pod = name
            self.time = 0
            self.count = 0

    def pass_over(self, lines: list[Line]) -> None:
        """Move behind lines that follow this place."""
        if not lines:
            return
        moment = lines[-1][1]
        count = len(list(takewhile(lambda line: line[1] == moment, reversed(lines))))
        if moment == self.time and count == len(lines):
            count += self.count
        self.time = moment
        self.count = count

    def text(self) -> str:
        """Return the cursor as text."""
        return f"{self.pod}:{self.time}:{self.count}"

    @staticmethod
    def of(text: str | None) -> Cursor:
        """Read what `text` has returned; None is the beginning.

        Raises:
            SpecError: if it is not a cursor.
        """
        if text is None:
            return Cursor()
        try:
            pod, moment, count = text.split(":")
            return Cursor(pod, int(moment), int(count))
        except ValueError as exc:
            raise SpecError(f"log cursor {text!r}: is not one that this scheduler gave") from exc


class Reading:
    """A request for the log of a pod, from a place on.

    Args:
        cluster: where the pod is.
        namespace: that of the pod.
        place: the place to begin at.
        over: whether its program has ended, so that a last line without a newline is whole.
        since: a time before which no line is wanted, in nanoseconds since the epoch.
        tail: begin with so many last lines; None: with the first.
        follow: go on until the container ends.

    Attributes:
        pieces: whole lines as they come, until the log ends or the connection breaks.
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
        self._time = place.time
        self._skip = place.count  # lines of that time that were read before
        self._over = over
        self._since = _api_time(max(place.time, since))
        self._tail = tail
        self._follow = follow
        self._response: Any = None
        self._clock = _StampReader()
        self._left: list[Line] = []  # lines that came and were not read yet
        self._closed = False
        self._ended = False
        self.broken = False
        self.pieces = self._read_pieces()

    @property
    def is_over(self) -> bool:
        """Whether it brings no more."""
        return self._ended and not self._left

    @property
    def is_all(self) -> bool:
        """Whether it brought all that was there when it was sent.

        False for a pod that had ended, for another pod may come after it.
        """
        return self.is_over and not self.broken and not self._over

    def read(self, max_bytes: int | None = None) -> list[Line]:
        """Return what comes next, about so much of it; None: all."""
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
        """End the request, also while another thread reads it."""
        self._closed = True
        if self._response is not None:
            cut(self._response)

    def _read_pieces(self) -> Iterator[list[Line]]:
        """Yield what `pieces` has."""
        from urllib3.exceptions import HTTPError

        begun: list[bytes] = []  # of a line whose end has not come yet
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
            for data in self._response.stream(_BLOCK):
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
        except (HTTPError, OSError, AttributeError):  # it broke, or was closed
            self.broken = not self._closed
        finally:
            self._ended = True
            self.close()

    def _new_lines(self, data: bytes, end: str) -> list[Line]:
        """Return the lines behind the place where the reading began, each with this end."""
        taken: list[Line] = []
        for line in data.decode("utf-8", "replace").split("\n"):
            stamp, _, text = line.partition(" ")
            moment = self._clock.moment(stamp)
            if moment < self._time:
                # read before, or no line of the log but the server's reason for having none
                continue
            if self._skip and moment == self._time:
                self._skip -= 1
                continue
            self._skip = 0
            taken.append((text + end, moment))
        return taken


class _StampReader:
    """Reads the stamps of lines. Most are of the same second as the one before."""

    def __init__(self) -> None:
        self._second = ""  # date and time of the last stamp
        self._zone = ""
        self._start = 0  # when that second began, in nanoseconds since the epoch

    def moment(self, stamp: str) -> int:
        """Return `nanoseconds` of a stamp; −1 if it is not a stamp."""
        zone = "Z" if stamp.endswith("Z") else stamp[-6:]
        second = stamp[:_SECOND]
        fraction = stamp[_SECOND : -len(zone)]
        is_same = second == self._second and zone == self._zone
        if is_same and fraction[:1] == "." and fraction[1:].isdecimal():
            return self._start + int(fraction[1:10].ljust(9, "0"))
        try:
            moment = nanoseconds(stamp)
        except ValueError:
            return -1
        self._second = second
        self._zone = zone
        self._start = moment // NS * NS
        return moment


def nanoseconds(text: str) -> int:
    """Return a time of the API as nanoseconds since the epoch; ValueError if it is not one."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    date_and_time, fraction, zone = match.groups()
    whole = datetime.fromisoformat(date_and_time + zone.replace("Z", "+00:00"))
    return int(whole.timestamp()) * NS + int((fraction or "0").ljust(9, "0"))


def last_moment(log: bytes) -> bytes:
    """Return the lines of a stamped log that were written in its last second, without stamps."""
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
    """Return how many characters lines have."""
    return sum(len(line) for line, _ in lines)


def split(lines: list[Line], size: int) -> tuple[list[Line], list[Line]]:
    """Split lines where so many characters have come, behind one line at least."""
    for index, (line, _) in enumerate(lines, 1):
        size -= len(line)
        if size <= 0:
            return lines[:index], lines[index:]
    return lines, []


def _api_time(moment: int) -> str | None:
    """Return a time as the API takes it, in whole seconds; None for the epoch itself.

    The lines are stamped by the clock that this is compared with. What comes of the same second too
    early is left out when it is read.
    """
    seconds = moment // NS
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
