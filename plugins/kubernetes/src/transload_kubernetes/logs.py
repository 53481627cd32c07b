"""Reading the logs of a replica: whole lines, each once, from any point on.

A cluster gives the log of a pod as lines with the time at which each was taken, stdout and stderr merged. Times never
run backwards, so "the pod, the time of the last line read, and how many of that time" is a place in the log.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError
from transload.schedulers.api import LogPage, check_replica
from transload.specs import is_terminal
from transload_kubernetes import names, states
from transload_kubernetes.cluster import Cluster, ClusterError, cut
from transload_kubernetes.judge import judge, replica_pods
from transload_kubernetes.plan import Facts

_NS: Final = 1_000_000_000
_SKEW_S: Final = 60
MAX_STREAMS: Final = 64
"""How many pods' logs are followed at once."""
_TURN_S: Final = 0.125  # between two requests for the logs of those that are not followed: these take turns
_BUFFER: Final = 1 << 20
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

    def pass_over(self, moment: int) -> None:
        """Move behind a line of that time."""
        self.count = self.count + 1 if moment == self.time else 1
        self.time = moment

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


def nanoseconds(text: str) -> int:
    """Return a time of the API as nanoseconds since the epoch; ValueError if it is not one."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    return int(whole.timestamp()) * _NS + int((match[2] or "0").ljust(9, "0"))


class Logs:
    """The logs on a cluster. Of running pods that somebody follows each has an open request and a thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tails: dict[tuple[str, str], _Tail] = {}
        self._rest: dict[tuple[str, str], tuple[float, str]] = {}  # what has no stream → when it was read, up to where
        self._lock = threading.Lock()

    def page(
        self, look: Callable[[], Facts], app_id: str, role: str, k: int, cursor: str | None, max_bytes: int,
        since: float | None, last: int | None,
    ) -> LogPage:  # fmt: skip
        """Return the next page of a replica's log, through all its pods; never blocks. ``look`` asks for the app.

        The cluster passes over what lies before ``since`` or the last lines.
        """
        namespace, place = names.parse_app_id(app_id)[0], Cursor.of(cursor)
        if cursor is not None and (came := self._take(namespace, place, max_bytes)) is not None:
            return _page(came, place, False)
        pods, final = _pods(look(), app_id, role, k)
        if last is not None and cursor is None:
            begun = [pod for pod in pods if states.has_begun(pod)]
            return _page(self._last(namespace, begun, place, last), place, False)
        taken: list[Line] = []
        size = 0
        for pod in _from(pods, place):
            place.enter(pod)
            reading = Reading(self._cluster, namespace, place, over=_over(pod), since=int((since or 0) * _NS))
            for line in reading.lines() if states.has_begun(pod) else ():
                taken.append(line)
                size += len(line[0])
                if size >= max_bytes:
                    reading.cut()
                    return _page(taken, place, False)
            if reading.broken:  # the next page goes on there
                return _page(taken, place, False)
            if not _over(pod) and not final:
                waits = cursor is not None and (not taken or len(self._tails) >= MAX_STREAMS)
                if waits and states.program(pod, "running"):
                    self._follow(namespace, place)  # somebody waits for more
                return _page(taken, place, False)
        return _page(taken, place, final)

    def _last(self, namespace: str, pods: list[dict[str, Any]], place: Cursor, count: int) -> list[Line]:
        """Return at least the last whole lines; the cursor is moved behind them."""
        taken: list[Line] = []
        for pod in reversed(pods):
            at = place if pod is pods[-1] else Cursor()
            at.enter(pod)
            wanted = count - len(taken) + 1
            while True:
                tail = Cursor(at.pod)
                found = list(Reading(self._cluster, namespace, tail, over=_over(pod), tailLines=wanted).lines())
                # how many lines of one time came before the last can be told if its time began within the window
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
            if full and known == place.text() and time.monotonic() - moment < len(self._rest) * _TURN_S:
                return []  # it has no stream, and not its turn yet
        found = tail.take(place, max_bytes) if tail is not None else None
        if tail is not None and found is None:
            self._drop([key])
        return found

    def _follow(self, namespace: str, place: Cursor) -> None:
        """Follow a pod from a place on. Beyond so many pods it is only noted: the rest is read in turns."""
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
                self._tails[key] = _Tail(self._cluster, namespace, replace(place))
                return
            left = now - _IDLE_S - 2 * _TURN_S * len(self._rest)  # whom nobody reads any more takes no turns
            self._rest = {each: seen for each, seen in self._rest.items() if seen[0] > left}
            self._rest[key] = (now, place.text())

    def close(self) -> None:
        """End all of them."""
        self._drop(list(self._tails))

    def _drop(self, keys: list[tuple[str, str]]) -> None:
        with self._lock:
            dropped = [tail for key in keys if (tail := self._tails.pop(key, None))]
        for tail in dropped:
            tail.stop()


class _Tail:
    """The log of one pod as it grows, from a place on, in a buffer."""

    def __init__(self, cluster: Cluster, namespace: str, place: Cursor) -> None:
        self.used = time.monotonic()
        self._read = Reading(cluster, namespace, replace(place), follow="true")
        self._place = place
        self._lines: deque[Line] = deque()
        self._size = 0
        self._ended = self._stopped = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"transload-kubernetes-log-{place.pod}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(ClusterError, SchedulerUnavailable):
            for line in self._read.lines():
                with self._condition:
                    self._condition.wait_for(lambda: self._size < _BUFFER or self._stopped)
                    if self._stopped:
                        break
                    self._lines.append(line)
                    self._size += len(line[0])
        with self._condition:
            self._ended = True

    def take(self, place: Cursor, max_bytes: int) -> list[Line] | None:
        """Return what has come behind a place, moving it; None if there is no more, or it is another place."""
        with self._condition:
            if place != self._place or (self._ended and not self._lines):
                return None
            self.used = time.monotonic()
            taken: list[Line] = []
            size = 0
            while self._lines and size < max_bytes:
                taken.append(self._lines.popleft())
                size += len(taken[-1][0])
                place.pass_over(taken[-1][1])
            self._size -= size
            self._place = replace(place)
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
    """A request for the log of a pod, from a place on, which moves and names the pod.

    ``over``: its program has ended, so that a last line without a newline is whole; ``since``: nothing before is
    wanted (nanoseconds since the epoch); ``query``: more of the API's own parameters.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, place: Cursor, over: bool = False, since: int = 0, **query: Any
    ) -> None:
        self._cluster, self._namespace, self._place, self._over = cluster, namespace, place, over
        self._options: dict[str, Any] = {"timestamps": "true", **query}
        start = max(place.time, since)
        if start:
            # whole seconds, counted back from now by the node's clock: what comes too early is left out below
            self._options["sinceSeconds"] = max(1, int(time.time() - start / _NS) + _SKEW_S)
        self._response: Any = None
        self._cut = False
        self.broken = False

    def lines(self) -> Iterator[Line]:
        """Yield whole lines, moving the place; what breaks the connection ends them (``broken``)."""
        from urllib3.exceptions import HTTPError

        self._response = self._cluster.log(self._namespace, self._place.pod, names.MAIN, **self._options)
        if self._response is None or self._cut:
            return self.cut()
        place, skip = self._place, self._place.count
        try:
            for raw in self._response:
                stamp, _, text = raw.partition(b" ")
                try:
                    moment = nanoseconds(stamp.decode("ascii"))
                except ValueError:
                    continue  # not a line of the log: the server's own word on why there is none
                if moment < place.time:
                    continue
                if moment == place.time and skip:
                    skip -= 1
                    continue
                if not text.endswith(b"\n") and not self._over:
                    return None
                skip = 0
                place.pass_over(moment)
                yield text.decode("utf-8", "replace"), moment
        except (HTTPError, OSError, AttributeError):  # broken off, or cut
            self.broken = not self._cut
            return None
        finally:
            self.cut()

    def cut(self) -> None:
        """End the request, also while another thread reads it."""
        self._cut = True
        if self._response is not None:
            cut(self._response)


def _pods(facts: Facts, app_id: str, name: str, k: int) -> tuple[list[dict[str, Any]], bool]:
    """Return a replica's pods, oldest first, and whether it has ended for good."""
    if facts.unreadable:
        raise SchedulerUnavailable(f"app {app_id}: {facts.unreadable}")
    if facts.plan is None:
        raise AppNotFound(app_id)
    check_replica(app_id, {each.name: each.replicas for each in facts.plan.roles}, name, k)
    role = next(each for each in facts.plan.roles if each.name == name)
    status = judge(facts, time.time()).status
    own = [each.replicas[k].state for each in status.roles if each.role == name and role.policy == "REPLICA"]
    return replica_pods(facts, name, k), status.is_terminal() or any(map(is_terminal, own))


def _page(lines: list[Line], place: Cursor, complete: bool) -> LogPage:
    stamps = [(index, moment / _NS) for index, (_, moment) in enumerate(lines)]
    return LogPage([line for line, _ in lines], place.text(), complete, stamps=stamps)


def _over(pod: dict[str, Any]) -> bool:
    return not states.is_active(pod) or bool(states.program(pod, "terminated"))


def _from(pods: list[dict[str, Any]], place: Cursor) -> list[dict[str, Any]]:
    """Return the pods that are still to be read; if the place's pod is gone, those made later."""
    named = [pod["metadata"]["name"] for pod in pods]
    if place.pod in named:
        return pods[named.index(place.pod) :]
    if not place.pod:
        return pods
    return [pod for pod in pods if (states.seconds(pod["metadata"].get("creationTimestamp")) or 0) * _NS >= place.time]
