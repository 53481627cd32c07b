"""Read the log of a replica through all its pods, as complete lines, each once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable
from transload.schedulers import OpenReadings
from transload.schedulers.api import LogPage, LogQuery, check_replica
from transload.schedulers.timed_log import NS
from transload.specs import is_terminal
from transload_kubernetes import names, states
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.decide import decide
from transload_kubernetes.log_reading import Cursor, Line, Reading, size_of, split
from transload_kubernetes.plan import Facts
from transload_kubernetes.roles import replica_pods

MAX_STREAMS: Final = 64
"""The largest number of pods whose logs are followed at the same time."""
_TURN_S: Final = 0.125
"""Seconds between two requests for the logs of further pods, which take turns."""
_BUFFER: Final = 1 << 20
_IDLE_S: Final = 30.0
_END_S: Final = 5.0

Key = tuple[str, str]
"""Namespace and name of a pod, or namespace and a place."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """When the log of a pod without a stream was last read, and up to which place."""

    moment: float  # `time.monotonic`
    place: str


class Logs:
    """Reads the logs on a cluster page by page.

    A page is a part of the answer to one request. The request stays open while a caller reads on,
    so that a long log is sent only once. The followed log of a running pod has an open request and
    a thread.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: OpenReadings[Key, Reading] = OpenReadings(MAX_STREAMS, _IDLE_S)
        self._tails: dict[Key, _Tail] = {}
        self._turns: dict[Key, _Turn] = {}  # followed pods beyond `MAX_STREAMS`
        self._lock = threading.Lock()

    def page(self, look: Callable[[], Facts], app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a replica's log, through all its pods, without waiting.

        The cluster leaves out the lines before ``since`` or before the last lines.

        Args:
            look: reads the facts of the job from the cluster.
            app_id: the job.
            query: the wanted part of the log.
        """
        namespace, _ = names.parse_app_id(app_id)
        place = Cursor.of(query.cursor)
        if query.cursor is not None:
            page = self._page_without_look(namespace, place, query.max_bytes)
            if page is not None:
                return page
        facts = look()
        now = self._cluster.now()
        pods, is_final = _pods(facts, now, app_id, query.role, query.replica)
        if query.last is not None and query.cursor is None:
            begun = _from_start([pod for pod in pods if states.has_begun(pod)], query.since)
            lines = self._last_lines(namespace, begun, place, query.last)
            return _page(lines, place, left=None)
        taken: list[Line] = []
        for pod in _from(pods, place):
            place.enter(pod)
            over = _has_ended(pod)
            if states.has_begun(pod) and not (over and self._is_end(namespace, place)):
                since = int((query.since or 0) * NS)
                reading = Reading(self._cluster, namespace, place, over=over, since=since)
                taken += self._read(reading, namespace, place, query.max_bytes - size_of(taken))
                if reading.broken or not reading.is_over:
                    return _page(taken, place, left=None)  # the next page goes on there
            if not over and not is_final:
                if query.cursor is not None and states.program(pod, "running"):
                    self._follow(namespace, place)  # the caller waits for more
                return _page(taken, place, left=0)
        return _page(taken, place, left=0, complete=is_final)

    def close(self) -> None:
        """End all requests and threads."""
        self._drop(list(self._tails))
        self._open.close()

    # -- pages of one request

    def _page_without_look(self, namespace: str, place: Cursor, max_bytes: int) -> LogPage | None:
        """Return the next page from an open request and move the place, or None if none is open."""
        followed = self._take_followed(namespace, place, max_bytes)
        if followed is not None:
            return _page(followed, place, left=None)
        reading = self._open.take((namespace, place.text()))
        if reading is None:
            return None
        taken = self._read(reading, namespace, place, max_bytes)
        if not taken:
            return None
        return _page(taken, place, left=0 if reading.is_all else None)

    def _read(self, reading: Reading, namespace: str, place: Cursor, max_bytes: int) -> list[Line]:
        """Return the next lines of a request and move the place.

        The request stays open if it has more lines.
        """
        taken = reading.read(max_bytes)
        place.pass_over(taken)
        if not reading.is_over:
            self._open.keep((namespace, place.text()), reading)
        return taken

    def _is_end(self, namespace: str, place: Cursor) -> bool:
        """Tell whether a place is the end of the log of a pod that has ended.

        This asks the cluster for a few lines.
        """
        read = place.place
        if not read.count:
            return False
        start = Cursor(place.pod)
        reading = Reading(self._cluster, namespace, start, over=True, tail=read.count + 1)
        times = [moment for _, moment in reading.read()]
        if reading.broken or times[-1:] != [read.time]:
            return False
        return times.count(read.time) == read.count

    # -- last lines

    def _last_lines(
        self, namespace: str, pods: list[dict[str, Any]], place: Cursor, count: int
    ) -> list[Line]:
        """Return at least ``count`` last lines, and move the place behind them."""
        taken: list[Line] = []
        for pod in reversed(pods):
            is_last = pod is pods[-1]
            lines, end = self._last_of_pod(namespace, pod, count - len(taken))
            if is_last:
                place.enter(pod)
                place.place = end.place
            taken[:0] = lines
            if len(taken) >= count:
                break
        return taken

    def _last_of_pod(
        self, namespace: str, pod: dict[str, Any], count: int
    ) -> tuple[list[Line], Cursor]:
        """Return at least the last lines of a pod, and the place behind them.

        The place needs the number of lines with the last line's time. It is known once an earlier
        line is among the lines. So this asks for a few lines, then for twice as many, and so on.
        """
        name = pod["metadata"]["name"]
        wanted = count + 1
        while True:
            reading = Reading(
                self._cluster, namespace, Cursor(name), over=_has_ended(pod), tail=wanted
            )
            lines = reading.read()
            end = Cursor(name)
            end.pass_over(lines)
            if len(lines) < wanted - 1 or lines[0][1] < end.place.time:
                return lines, end
            wanted *= 2

    # -- logs that are followed

    def _take_followed(self, namespace: str, place: Cursor, max_bytes: int) -> list[Line] | None:
        """Return the lines after a place and move it, or None if the cluster must be asked."""
        key = namespace, place.pod
        with self._lock:
            tail = self._tails.get(key)
            if self._must_wait(key, place):
                return []
        if tail is None:
            return None
        taken = tail.take(place, max_bytes)
        if taken is None:
            self._drop([key])
        return taken

    def _must_wait(self, key: Key, place: Cursor) -> bool:
        """Tell whether a pod without a stream must wait for its turn. The caller holds the lock."""
        turn = self._turns.get(key)
        if turn is None or turn.place != place.text() or len(self._tails) < MAX_STREAMS:
            return False
        return time.monotonic() - turn.moment < len(self._turns) * _TURN_S

    def _follow(self, namespace: str, place: Cursor) -> None:
        """Follow the log of a pod from a place on. Pods beyond `MAX_STREAMS` take turns."""
        now = time.monotonic()
        key = namespace, place.pod
        with self._lock:
            idle = [key for key, tail in self._tails.items() if now - tail.used > _IDLE_S]
        self._drop(idle)
        with self._lock:
            if key in self._tails:
                return
            if len(self._tails) < MAX_STREAMS:
                self._turns.pop(key, None)
                self._tails[key] = _Tail(self._cluster, namespace, place)
                return
            # logs that are no longer read take no turns
            oldest = now - _IDLE_S - 2 * _TURN_S * len(self._turns)
            self._turns = {each: turn for each, turn in self._turns.items() if turn.moment > oldest}
            self._turns[key] = _Turn(now, place.text())

    def _drop(self, keys: list[Key]) -> None:
        """End the requests and threads of followed logs."""
        with self._lock:
            found = [self._tails.pop(key, None) for key in keys]
        for tail in found:
            if tail is not None:
                tail.stop()


class _Tail:
    """A buffer with the growing log of one pod, from a place on."""

    def __init__(self, cluster: Cluster, namespace: str, place: Cursor) -> None:
        self.used = time.monotonic()
        self._reading = Reading(cluster, namespace, place, follow=True)
        self._place = place.copy()
        self._pieces: deque[list[Line]] = deque()
        self._size = 0
        self._ended = False
        self._stopped = False
        self._condition = threading.Condition()
        name = f"transload-kubernetes-log-{place.pod}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(ClusterError, SchedulerUnavailable):
            for lines in self._reading.pieces:
                with self._condition:
                    self._condition.wait_for(lambda: self._size < _BUFFER or self._stopped)
                    if self._stopped:
                        break
                    self._pieces.append(lines)
                    self._size += size_of(lines)
        with self._condition:
            self._ended = True

    def take(self, place: Cursor, max_bytes: int) -> list[Line] | None:
        """Return the lines after a place, and move it.

        Returns:
            The lines, or None if no more will come, or the buffer is at another place.
        """
        with self._condition:
            if place != self._place or (self._ended and not self._pieces):
                return None
            self.used = time.monotonic()
            taken: list[Line] = []
            size = 0
            while self._pieces and size < max_bytes:
                lines, rest = split(self._pieces.popleft(), max_bytes - size)
                if rest:
                    self._pieces.appendleft(rest)
                taken += lines
                size += size_of(lines)
            place.pass_over(taken)
            self._place = place.copy()
            self._size -= size
            self._condition.notify_all()
            return taken

    def stop(self) -> None:
        """End the request and the thread."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self._reading.close()
        self._thread.join(_END_S)


def _pods(
    facts: Facts, now: float, app_id: str, name: str, k: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return a replica's pods, oldest first, and whether it has ended for good."""
    if facts.unreadable:
        raise SchedulerUnavailable(f"job {app_id}: {facts.unreadable}")
    if facts.plan is None:
        raise AppNotFound(app_id)
    check_replica(app_id, {each.name: each.replicas for each in facts.plan.roles}, name, k)
    role = next(each for each in facts.plan.roles if each.name == name)
    status = decide(facts, now).status
    is_final = status.is_terminal()
    if role.policy == "REPLICA":
        own = [each.replicas[k] for each in status.roles if each.role == name]
        is_final = is_final or any(is_terminal(each.state) for each in own)
    return replica_pods(facts, name, k), is_final


def _page(lines: list[Line], place: Cursor, *, left: int | None, complete: bool = False) -> LogPage:
    """Return lines as a page that ends at a place."""
    stamps = [(index, moment / NS) for index, (_, moment) in enumerate(lines)]
    text = [line for line, _ in lines]
    return LogPage(text, place.text(), complete, stamps=stamps, left=left)


def _has_ended(pod: dict[str, Any]) -> bool:
    """Tell whether the program of a pod has ended."""
    return not states.is_active(pod) or bool(states.program(pod, "terminated"))


def _from_start(pods: list[dict[str, Any]], since: float | None) -> list[dict[str, Any]]:
    """Return only the last pod if ``since`` is the time at which it was started, else all pods.

    Start times are whole seconds, so the pod before may have written in the same second.
    """
    if since is None or not pods:
        return pods
    newest = pods[-1]
    began = states.program(newest, "terminated") or states.program(newest, "running")
    if states.seconds(began.get("startedAt")) == since:
        return [newest]
    return pods


def _from(pods: list[dict[str, Any]], place: Cursor) -> list[dict[str, Any]]:
    """Return the pods that are still to be read, or the later ones if the place's pod is gone."""
    if not place.pod:
        return pods
    for index, pod in enumerate(pods):
        if pod["metadata"]["name"] == place.pod:
            return pods[index:]
    return [pod for pod in pods if _made(pod) * NS >= place.place.time]


def _made(pod: dict[str, Any]) -> float:
    """Return when a pod was created, in seconds since the epoch, or 0 if it is unknown."""
    return states.seconds(pod["metadata"].get("creationTimestamp")) or 0.0
