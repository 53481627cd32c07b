"""Reading the logs of a replica: whole lines, each once, from any point on.

A cluster gives the log of a pod as lines with the time at which each was taken, stdout and stderr merged. Times never
run backwards, so "the pod, the time of the last line read, and how many of that time" is a place in the log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError
from transload.schedulers import line_search
from transload.schedulers.api import LogPage, Stream
from transload.specs import AppStatus, is_terminal
from transload_kubernetes import states
from transload_kubernetes.cluster import Cluster, cut, lines
from transload_kubernetes.plan import Facts
from transload_kubernetes.pod import MAIN
from transload_kubernetes.views import replica_pods
from transload_kubernetes.watch import ClusterWatch

_NS: Final = 1_000_000_000
_LOOK_AGAIN_S: Final = 1.0
_PATIENCE_S: Final = 60.0
_SKEW_S: Final = 60
_GONE: Final = frozenset({"Succeeded", "Failed"})

Look = Callable[[], tuple[Facts, AppStatus]]
"""Asks the cluster for an app: facts and the status that they mean."""


@dataclass(slots=True)
class Cursor:
    """A place in the log of a replica.

    Args:
        pod: name of the pod; ``""``: before the first.
        time: time of the last line read, nanoseconds since the epoch.
        count: how many lines of exactly that time were read.
    """

    pod: str = ""
    time: int = 0
    count: int = 0

    def text(self) -> str:
        """Return the cursor as text."""
        return f"{self.pod}:{self.time}:{self.count}"

    @staticmethod
    def of(text: str | None) -> Cursor:
        """Read what `text` gave; None is the beginning.

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


def nanoseconds(text: str) -> int:
    """Return a time of the API as nanoseconds since the epoch.

    Raises:
        ValueError: if it is not one.
    """
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time")
    whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    return int(whole.timestamp()) * _NS + int((match[2] or "0").ljust(9, "0"))


def to_nanoseconds(moment: datetime | None) -> int | None:
    """Return a moment (naive: local time) as nanoseconds since the epoch."""
    return None if moment is None else round(moment.timestamp() * 1_000_000) * 1000


class LogView:
    """The log of one replica, through all its pods.

    Args:
        cluster: the cluster.
        namespace: the app's namespace.
        look: asks for the app.
        app_id: the app.
        role: the role.
        k: number of the replica.
    """

    def __init__(self, cluster: Cluster, namespace: str, look: Look, app_id: str, role: str, k: int) -> None:
        self._cluster, self._namespace, self._look = cluster, namespace, look
        self._app_id, self._role, self._k = app_id, role, k

    def _pods(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the replica's pods, oldest first, and whether it has ended for good."""
        facts, status = self._look()
        try:
            made = facts.plan()
        except ValueError as exc:
            raise SchedulerUnavailable(f"app {self._app_id}: its record cannot be read: {exc}") from exc
        if made is None:
            raise AppNotFound(self._app_id)
        role = next((each for each in made.roles if each.name == self._role), None)
        if role is None:
            known = ", ".join(each.name for each in made.roles)
            raise SpecError(f"role {self._role!r}: app {self._app_id} has no such role (it has: {known})")
        if not 0 <= self._k < role.replicas:
            raise SpecError(f"replica {self._k} of role {self._role!r}: must be 0 to {role.replicas - 1}")
        final = status.is_terminal()
        for each in status.roles:
            if each.role == self._role and role.policy == "REPLICA":
                final = final or is_terminal(each.replicas[self._k].state)
        return replica_pods(facts, self._role, self._k), final

    def page(self, stream: Stream, cursor: str | None, max_bytes: int) -> LogPage:
        """Return the next page; never blocks. All output counts as stdout; stderr is empty."""
        place = Cursor.of(cursor)
        pods, final = self._pods()
        if stream is Stream.STDERR:
            return LogPage([], place.text(), final)
        taken: list[str] = []
        size = 0
        for pod in _from(pods, place):
            _enter(place, pod)
            for line, _ in self._read(pod, place):
                taken.append(line)
                size += len(line)
                if size >= max_bytes:
                    return LogPage(taken, place.text(), False)
            if not _over(pod) and not final:
                return LogPage(taken, place.text(), False)
        return LogPage(taken, place.text(), final)

    def iterate(
        self, stream: Stream, regex: str | None, since: int | None, until: int | None, follow: bool
    ) -> Iterator[str]:
        """Yield lines; arguments and errors are checked at the call."""
        found = line_search(regex)
        self._pods()
        if stream is Stream.STDERR:
            return iter(())

        def wanted() -> Iterator[str]:
            for line, moment in self._lines(follow, since or 0):
                if until is not None and moment >= until:
                    return
                if since is not None and moment < since:
                    continue
                if found(line):
                    yield line

        return wanted()

    def _lines(self, follow: bool, since: int) -> Iterator[tuple[str, int]]:
        place = Cursor()
        watch: ClusterWatch | None = None
        broken_since: float | None = None
        try:
            while True:
                try:
                    pods, final = self._pods()
                    live = (
                        follow and not final
                    )  # of what has ended for good nothing is waited for, whatever its pods say
                    for pod in _from(pods, place):
                        _enter(place, pod)
                        yield from self._read(pod, place, follow=live and not _over(pod), since=since)
                        if live and not _over(pod):
                            break  # look again: it has ended, or the connection broke
                    if not live:
                        return
                    broken_since = None
                except SchedulerUnavailable:
                    now = time.monotonic()
                    broken_since = broken_since or now
                    if not follow or now - broken_since > _PATIENCE_S:
                        raise
                watch = watch or self._watch()
                watch.wait(_LOOK_AGAIN_S)
        finally:
            if watch is not None:
                watch.close()

    def _watch(self) -> ClusterWatch:
        watch = ClusterWatch(self._cluster)
        watch.update([self._app_id])
        return watch

    def _read(
        self, pod: dict[str, Any], place: Cursor, *, follow: bool = False, since: int = 0
    ) -> Iterator[tuple[str, int]]:
        """Yield lines of one pod behind a place, moving it; an unfinished last line only if the pod is over."""
        options: dict[str, Any] = {"follow": "true"} if follow else {}
        start = max(place.time, since)
        if start:
            # whole seconds, counted back from now by the node's clock: what comes too early is left out below
            options["sinceSeconds"] = max(1, int(datetime.now(UTC).timestamp() - start / _NS) + _SKEW_S)
        response = self._cluster.log(self._namespace, pod["metadata"]["name"], MAIN, **options)
        if response is None:
            return
        skip = place.count
        try:
            for raw in lines(response):
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
                if not text.endswith(b"\n") and not _over(pod):
                    return
                place.count = place.count + 1 if moment == place.time else 1
                skip = 0
                place.time = moment
                yield text.decode("utf-8", "replace"), moment
        except Exception as exc:
            if not _broken(exc):
                raise
        finally:
            cut(response)


def _broken(exc: Exception) -> bool:
    from urllib3.exceptions import HTTPError

    return isinstance(exc, (HTTPError, OSError, AttributeError))


def _over(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in _GONE or bool(states.program(pod, "terminated"))


def _from(pods: list[dict[str, Any]], place: Cursor) -> list[dict[str, Any]]:
    """Return the pods that are still to be read; if the place's pod is gone, those made later."""
    named = [pod["metadata"]["name"] for pod in pods]
    if place.pod in named:
        return pods[named.index(place.pod) :]
    if not place.pod:
        return pods
    return [pod for pod in pods if (states.seconds(pod["metadata"].get("creationTimestamp")) or 0) * _NS >= place.time]


def _enter(place: Cursor, pod: dict[str, Any]) -> None:
    name = pod["metadata"]["name"]
    if place.pod != name:
        place.pod, place.time, place.count = name, 0, 0
