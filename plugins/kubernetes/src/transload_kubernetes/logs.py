"""Reading the logs of a replica: whole lines, each once, from any point on.

A cluster gives the log of a pod as lines with the time at which each was taken, stdout and stderr
merged. Times never run backwards, so "the pod, the time of the last line read, and how many of that
time" is a place in the log.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError
from transload.schedulers.api import LogPage, LogQuery, check_replica
from transload.specs import is_terminal
from transload_kubernetes import names, states
from transload_kubernetes.cluster import Cluster, ClusterError, cut
from transload_kubernetes.decide import decide
from transload_kubernetes.plan import Facts
from transload_kubernetes.roles import replica_pods

_NS: Final = 1_000_000_000
MAX_STREAMS: Final = 64
"""How many pods' logs are followed at once."""
_TURN_S: Final = (
    0.125  # between two requests for the logs of those that are not followed: these take turns
)
_BUFFER: Final = 1 << 20
_PIECE: Final = 1 << 16
_IDLE_S: Final = 30.0
_END_S: Final = 5.0

Line = tuple[str, int]
"""A line, and when it was written: nanoseconds since the epoch."""


@dataclass(slots=True)
class Cursor:
    """A place in the log of a replica."""

    pod: str = ""  # name of the pod; ``""``: before the first
    time: int = 0  # time of the last line read, nanoseconds since the epoch
    count: int = 0  # how many lines of exactly that time were read

    def enter(self, pod: dict[str, Any]) -> None:
        """Go to the beginning of a pod's log, unless this is a place in it."""
        name = pod["metadata"]["name"]
        if self.pod != name:
            self.pod, self.time, self.count = name, 0, 0

    def pass_over(self, lines: list[Line]) -> None:
        """Move behind lines that follow."""
        if not lines:
            return
        moment = lines[-1][1]
        count = len(list(takewhile(lambda line: line[1] == moment, reversed(lines))))
        if moment == self.time and count == len(lines):
            count += self.count
        self.time, self.count = moment, count

    def text(self) -> str:
        """Return the cursor as text."""
        return f"{self.pod}:{self.time}:{self.count}"

    @staticmethod
    def of(text: str | None) -> Cursor:
        """Read what `text` gave; None is the beginning, anything else a SpecError."""
        if text is None:
            return Cursor()
        try:
            pod, moment, count = text.split(":")
            return Cursor(pod, int(moment), int(count))
        except ValueError as exc:
            raise SpecError(f"log cursor {text!r}: is not one that this scheduler gave") from exc


def last_moment(log: bytes) -> bytes:
    """Return the lines of a log with stamps that were written in its last second, without the
    stamps.
    """
    lines = [line.partition(b" ") for line in log.splitlines(keepends=True)]
    found: list[bytes] = []
    end = None
    for stamp, _, line in reversed(lines):
        try:
            moment = nanoseconds(stamp.decode("ascii", "replace"))
        except ValueError:
            continue
        end = moment if end is None else end
        if end - moment > _NS:
            break
        found.append(line)
    return b"".join(reversed(found))


def nanoseconds(text: str) -> int:
    """Return a time of the API as nanoseconds since the epoch; ValueError if it is not one."""
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)", text
    )
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    return int(whole.timestamp()) * _NS + int((match[2] or "0").ljust(9, "0"))


class Logs:
    """The logs on a cluster.

    A page is a piece of what one request brings: as long as somebody reads on, the request stays
    open, so that a log is sent once, however long it is. Of running pods that somebody follows each
    has an open request and a thread.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tails: dict[tuple[str, str], _Tail] = {}
        self._rest: dict[
            tuple[str, str], tuple[float, str]
        ] = {}  # what has no stream → when it was read, up to where
        self._open: dict[
            tuple[str, str], Reading
        ] = {}  # namespace and place → the request that goes on there
        self._lock = threading.Lock()

    def page(self, look: Callable[[], Facts], app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a replica's log, through all its pods; never blocks.

        The cluster passes over what lies before ``since`` or the last lines.

        Args:
            look: asks the cluster for the job.
            app_id: the job.
            query: what is wanted.
        """
        cursor = query.cursor
        max_bytes = query.max_bytes
        namespace = names.parse_app_id(app_id)[0]
        place = Cursor.of(cursor)
        if cursor is not None:
            came = self._take(namespace, place, max_bytes)
            if came is not None:
                return _page(came, place, left=None)
            page = self._resume(namespace, place, max_bytes)
            if page is not None:
                return page
        pods, final = _pods(look(), app_id, query.role, query.replica)
        if query.last is not None and cursor is None:
            begun = _from_start([pod for pod in pods if states.has_begun(pod)], query.since)
            return _page(self._last(namespace, begun, place, query.last), place, left=None)
        taken: list[Line] = []
        for pod in _from(pods, place):
            place.enter(pod)
            over = _over(pod)
            if states.has_begun(pod) and not (over and self._is_end(namespace, place)):
                reading = Reading(
                    self._cluster, namespace, place, over=over, since=int((query.since or 0) * _NS)
                )
                taken += self._read(reading, namespace, place, max_bytes - _size(taken))
                if reading.broken or not reading.is_over:  # the next page goes on there
                    return _page(taken, place, left=None)
            if not over and not final:
                if cursor is not None and states.program(pod, "running"):
                    self._follow(namespace, place)  # somebody waits for more
                return _page(taken, place, left=0)
        return _page(taken, place, left=0, complete=final)

    def _read(self, reading: Reading, namespace: str, place: Cursor, max_bytes: int) -> list[Line]:
        """Return what a request brings next, moving the place; it is kept open if that was not all
        of it.
        """
        taken = reading.read(max_bytes)
        place.pass_over(taken)
        if not reading.is_over:
            with self._lock:
                self._open[namespace, place.text()] = reading
                left = [self._open.pop(key) for key in list(self._open)[:-MAX_STREAMS]]
            for each in left:
                each.cut()
        return taken

    def _resume(self, namespace: str, place: Cursor, max_bytes: int) -> LogPage | None:
        """Return what an open request brings behind a place, moving it; None if there is none, or
        nothing more.
        """
        now = time.monotonic()
        with self._lock:
            reading = self._open.pop((namespace, place.text()), None)
            idle = [key for key, each in self._open.items() if now - each.used > _IDLE_S]
            left = [self._open.pop(key) for key in idle]
        for each in left:
            each.cut()
        if reading is None:
            return None
        taken = self._read(reading, namespace, place, max_bytes)
        if not taken:
            return None
        return _page(taken, place, left=0 if reading.is_all else None)

    def _is_end(self, namespace: str, place: Cursor) -> bool:
        """Tell whether nothing comes behind a place in the log of a pod that has ended; asks for a
        few lines.
        """
        if not place.count:
            return False
        reading = Reading(
            self._cluster, namespace, Cursor(place.pod), over=True, tailLines=place.count + 1
        )
        tail = [moment for _, moment in reading.read()]
        return (
            not reading.broken
            and tail[-1:] == [place.time]
            and tail.count(place.time) == place.count
        )

    def _last(
        self, namespace: str, pods: list[dict[str, Any]], place: Cursor, count: int
    ) -> list[Line]:
        """Return at least the last whole lines; the cursor is moved behind them."""
        taken: list[Line] = []
        for pod in reversed(pods):
            at = place if pod is pods[-1] else Cursor()
            at.enter(pod)
            wanted = count - len(taken) + 1
            while True:
                reading = Reading(
                    self._cluster, namespace, Cursor(at.pod), over=_over(pod), tailLines=wanted
                )
                found, tail = reading.read(), Cursor(at.pod)
                tail.pass_over(found)
                # how many lines of one time came before the last can be told if its time began
                # within the window
                if len(found) < wanted - 1 or found[0][1] < tail.time:
                    break
                wanted *= 2
            at.time, at.count = tail.time, tail.count
            taken[:0] = found
            if len(taken) >= count:
                break
        return taken

    def _take(self, namespace: str, place: Cursor, max_bytes: int) -> list[Line] | None:
        """Return what has come behind a place, moving it; None if its pod is to be asked."""
        key = namespace, place.pod
        with self._lock:
            tail = self._tails.get(key)
            moment, known = self._rest.get(key, (0.0, ""))
            full = len(self._tails) >= MAX_STREAMS
            if (
                full
                and known == place.text()
                and time.monotonic() - moment < len(self._rest) * _TURN_S
            ):
                return []  # it has no stream, and not its turn yet
        found = tail.take(place, max_bytes) if tail is not None else None
        if tail is not None and found is None:
            self._drop([key])
        return found

    def _follow(self, namespace: str, place: Cursor) -> None:
        """Follow a pod from a place on. Beyond so many pods it is only noted: the rest is read in
        turns.
        """
        now = time.monotonic()
        key = namespace, place.pod
        with self._lock:
            idle = [key for key, tail in self._tails.items() if now - tail.used > _IDLE_S]
        self._drop(idle)
        with self._lock:
            if key in self._tails:
                return
            if len(self._tails) < MAX_STREAMS:
                self._rest.pop(key, None)
                self._tails[key] = _Tail(self._cluster, namespace, place)
                return
            left = (
                now - _IDLE_S - 2 * _TURN_S * len(self._rest)
            )  # whom nobody reads any more takes no turns
            self._rest = {each: seen for each, seen in self._rest.items() if seen[0] > left}
            self._rest[key] = (now, place.text())

    def close(self) -> None:
        """End all of them."""
        self._drop(list(self._tails))
        with self._lock:
            left, self._open = self._open, {}
        for reading in left.values():
            reading.cut()

    def _drop(self, keys: list[tuple[str, str]]) -> None:
        with self._lock:
            dropped = [tail for key in keys if (tail := self._tails.pop(key, None))]
        for tail in dropped:
            tail.stop()


class _Tail:
    """The log of one pod as it grows, from a place on, in a buffer."""

    def __init__(self, cluster: Cluster, namespace: str, place: Cursor) -> None:
        self.used = time.monotonic()
        self._read = Reading(cluster, namespace, place, follow="true")
        self._place = replace(place)
        self._pieces: deque[list[Line]] = deque()
        self._size = 0
        self._ended = self._stopped = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, name=f"transload-kubernetes-log-{place.pod}", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(ClusterError, SchedulerUnavailable):
            for lines in self._read.pieces:
                with self._condition:
                    self._condition.wait_for(lambda: self._size < _BUFFER or self._stopped)
                    if self._stopped:
                        break
                    self._pieces.append(lines)
                    self._size += _size(lines)
        with self._condition:
            self._ended = True

    def take(self, place: Cursor, max_bytes: int) -> list[Line] | None:
        """Return what has come behind a place, moving it; None if there is no more, or it is
        another place.
        """
        with self._condition:
            if place != self._place or (self._ended and not self._pieces):
                return None
            self.used = time.monotonic()
            taken: list[Line] = []
            size = 0
            while self._pieces and size < max_bytes:
                lines, rest = _split(self._pieces.popleft(), max_bytes - size)
                if rest:
                    self._pieces.appendleft(rest)
                taken += lines
                size += _size(lines)
            place.pass_over(taken)
            self._place = replace(place)
            self._size -= size
            self._condition.notify_all()
            return taken

    def stop(self) -> None:
        """End the request and the thread."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self._read.cut()
        self._thread.join(_END_S)


class Reading:
    """A request for the log of a pod, from a place on.

    ``over``: its program has ended, so that a last line without a newline is whole; ``since``:
    nothing before is wanted (nanoseconds since the epoch); ``query``: more of the API's own
    parameters.

    Attributes:
        pieces: whole lines as they come; what breaks the connection ends them (``broken``).
        used: when it was last read (`time.monotonic`).
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        place: Cursor,
        over: bool = False,
        since: int = 0,
        **query: Any,
    ) -> None:
        self._cluster, self._namespace, self._over = cluster, namespace, over
        self._pod, self._time = place.pod, place.time
        self._skip = place.count  # lines of that time that were read before
        self._options: dict[str, Any] = {"timestamps": "true", **query}
        start = max(place.time, since) // _NS
        # by the clock that stamps the lines; what comes of that second too early is left out below
        if start:
            self._options["sinceTime"] = datetime.fromtimestamp(start, UTC).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            )
        self._response: Any = None
        self.pieces = self._come()
        self._cut = False
        self._second: tuple[str, str, int] = (
            "",
            "",
            0,
        )  # date and time, zone, and the nanoseconds that they are
        self._left: list[Line] = []  # came, and was not read yet
        self._ended = self.broken = False
        self.used = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it brings no more."""
        return self._ended and not self._left

    @property
    def is_all(self) -> bool:
        """Whether it brought all that was there when it was asked for; behind a pod that had ended
        another may be.
        """
        return self.is_over and not self.broken and not self._over

    def read(self, max_bytes: int | None = None) -> list[Line]:
        """Return what comes next, about so much of it; None: all."""
        taken: list[Line] = []
        size = 0
        while max_bytes is None or size < max_bytes:
            lines = self._left or next(self.pieces, [])
            if not lines:
                break
            lines, self._left = (
                (lines, []) if max_bytes is None else _split(lines, max_bytes - size)
            )
            taken += lines
            size += _size(lines)
        self.used = time.monotonic()
        return taken

    def _come(self) -> Iterator[list[Line]]:
        """Yield what `pieces` has."""
        from urllib3.exceptions import HTTPError

        begun: list[bytes] = []  # of a line whose end has not come yet
        try:
            self._response = self._cluster.log(
                self._namespace, self._pod, names.MAIN, **self._options
            )
            if self._response is None or self._cut:
                return
            for data in self._response.stream(_PIECE):
                whole, newline, rest = data.rpartition(b"\n")
                if not newline:
                    begun.append(data)
                    continue
                lines = self._take(b"".join([*begun, whole]), "\n")
                begun = [rest]
                if lines:
                    yield lines
            if self._over and any(begun) and (lines := self._take(b"".join(begun), "")):
                yield lines
        except (HTTPError, OSError, AttributeError):  # broken off, or cut
            self.broken = not self._cut
        finally:
            self._ended = True
            self.cut()

    def _take(self, data: bytes, end: str) -> list[Line]:
        """Return the lines behind the place where it began, each with this end."""
        taken: list[Line] = []
        for line in data.decode("utf-8", "replace").split("\n"):
            stamp, _, text = line.partition(" ")
            moment = self._moment(stamp)
            if moment < self._time:
                # read before, or no line of the log: the server's own word on why there is none
                continue
            if self._skip and moment == self._time:
                self._skip -= 1
                continue
            self._skip = 0
            taken.append((text + end, moment))
        return taken

    def _moment(self, stamp: str) -> int:
        """Return `nanoseconds` of a stamp, -1 if it is none; most are of the same second as the one
        before.
        """
        zone = "Z" if stamp.endswith("Z") else stamp[-6:]
        fraction = stamp[19 : -len(zone)]
        second, same, start = self._second
        if (
            stamp[:19] == second
            and zone == same
            and fraction[:1] == "."
            and fraction[1:].isdecimal()
        ):
            return start + int(fraction[1:10].ljust(9, "0"))
        try:
            moment = nanoseconds(stamp)
        except ValueError:
            return -1
        self._second = (stamp[:19], zone, moment // _NS * _NS)
        return moment

    def cut(self) -> None:
        """End the request, also while another thread reads it."""
        self._cut = True
        if self._response is not None:
            cut(self._response)


def _size(lines: list[Line]) -> int:
    return sum(len(line) for line, _ in lines)


def _split(lines: list[Line], size: int) -> tuple[list[Line], list[Line]]:
    """Split lines where so many characters have come, behind one line at least."""
    for index, (line, _) in enumerate(lines, 1):
        size -= len(line)
        if size <= 0:
            return lines[:index], lines[index:]
    return lines, []


def _pods(facts: Facts, app_id: str, name: str, k: int) -> tuple[list[dict[str, Any]], bool]:
    """Return a replica's pods, oldest first, and whether it has ended for good."""
    if facts.unreadable:
        raise SchedulerUnavailable(f"app {app_id}: {facts.unreadable}")
    if facts.plan is None:
        raise AppNotFound(app_id)
    check_replica(app_id, {each.name: each.replicas for each in facts.plan.roles}, name, k)
    role = next(each for each in facts.plan.roles if each.name == name)
    status = decide(facts, time.time()).status
    own = [
        each.replicas[k].state
        for each in status.roles
        if each.role == name and role.policy == "REPLICA"
    ]
    return replica_pods(facts, name, k), status.is_terminal() or any(map(is_terminal, own))


def _page(lines: list[Line], place: Cursor, *, left: int | None, complete: bool = False) -> LogPage:
    stamps = [(index, moment / _NS) for index, (_, moment) in enumerate(lines)]
    return LogPage([line for line, _ in lines], place.text(), complete, stamps=stamps, left=left)


def _over(pod: dict[str, Any]) -> bool:
    return not states.is_active(pod) or bool(states.program(pod, "terminated"))


def _from_start(pods: list[dict[str, Any]], since: float | None) -> list[dict[str, Any]]:
    """Return the last pod alone where the time that is asked for is that of its start; else all.

    Times of starts are whole seconds: the pod before may have written in the same one.
    """
    ends = pods[-1:]
    starts = [states.program(pod, "terminated") or states.program(pod, "running") for pod in ends]
    is_start = since is not None and since in [
        states.seconds(each.get("startedAt")) for each in starts
    ]
    return ends if is_start else pods


def _from(pods: list[dict[str, Any]], place: Cursor) -> list[dict[str, Any]]:
    """Return the pods that are still to be read; if the place's pod is gone, those made later."""
    named = [pod["metadata"]["name"] for pod in pods]
    if place.pod in named:
        return pods[named.index(place.pod) :]
    if not place.pod:
        return pods
    return [
        pod
        for pod in pods
        if (states.seconds(pod["metadata"].get("creationTimestamp")) or 0) * _NS >= place.time
    ]
