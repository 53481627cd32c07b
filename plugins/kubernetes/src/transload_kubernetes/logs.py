"""Reading the logs of a replica: whole lines, each once, from any point on.

A cluster gives the log of a pod as lines with the time at which each was taken, stdout and stderr merged. Times never
run backwards, so "the pod, the time of the last line read, and how many of that time" is a place in the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError
from transload.schedulers.api import LogPage
from transload.specs import AppStatus, is_terminal
from transload_kubernetes import states
from transload_kubernetes.cluster import Cluster, cut, lines
from transload_kubernetes.plan import Facts
from transload_kubernetes.pod import MAIN
from transload_kubernetes.views import replica_pods

_NS: Final = 1_000_000_000
_SKEW_S: Final = 60
_GONE: Final = frozenset({"Succeeded", "Failed"})

Line = tuple[str, int]
"""A line, and when it was written: nanoseconds since the epoch."""

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

    def page(self, cursor: str | None, max_bytes: int, since: float | None, last: int | None) -> LogPage:
        """Return the next page; never blocks. The cluster passes over what lies before ``since`` or the last lines."""
        place = Cursor.of(cursor)
        pods, final = self._pods()
        if last is not None and cursor is None:
            return _page(self._last(pods, place, last), place, False)
        taken: list[Line] = []
        size = 0
        for pod in _from(pods, place):
            _enter(place, pod)
            for line in self._read(pod, place, since=int((since or 0) * _NS)):
                taken.append(line)
                size += len(line[0])
                if size >= max_bytes:
                    return _page(taken, place, False)
            if not _over(pod) and not final:
                return _page(taken, place, False)
        return _page(taken, place, final)

    def _last(self, pods: list[dict[str, Any]], place: Cursor, count: int) -> list[Line]:
        """Return at least the last whole lines; the cursor is moved behind them."""
        taken: list[Line] = []
        for pod in reversed(pods):
            at = place if pod is pods[-1] else Cursor()
            taken[:0] = self._tail(pod, at, count - len(taken))
            if len(taken) >= count:
                break
        return taken

    def _tail(self, pod: dict[str, Any], place: Cursor, count: int) -> list[Line]:
        _enter(place, pod)
        wanted = count + 1
        while True:
            at = Cursor(place.pod)
            found = list(self._read(pod, at, tail=wanted))
            # how many lines of one time came before the last can be told if its time began within the window
            if len(found) < wanted - 1 or found[0][1] < at.time:
                place.time, place.count = at.time, at.count
                return found
            wanted *= 2

    def _read(self, pod: dict[str, Any], place: Cursor, *, since: int = 0, tail: int | None = None) -> Iterator[Line]:
        """Yield lines of one pod behind a place, moving it; an unfinished last line only if the pod is over."""
        options: dict[str, Any] = {} if tail is None else {"tail_lines": tail}
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


def _page(lines: list[Line], place: Cursor, complete: bool) -> LogPage:
    stamps = [(index, moment / _NS) for index, (_, moment) in enumerate(lines)]
    return LogPage([line for line, _ in lines], place.text(), complete, stamps=stamps)


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
