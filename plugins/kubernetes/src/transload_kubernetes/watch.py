"""Which apps may have changed: one watch on the Jobs of each namespace, whatever the number of apps."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Collection
from typing import Any, Final

from transload.errors import ConfigError, SchedulerUnavailable
from transload_kubernetes import names
from transload_kubernetes.cluster import Cluster, ClusterError, cut, lines

_SESSION_S: Final = 300
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0
_END_S: Final = 5.0


class ClusterWatch:
    """Tells which apps may have changed.

    A watch that breaks goes on where it was; where the server has forgotten that place (410) all is listed anew and
    every watched app of the namespace counts as changed.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ids: dict[tuple[str, str], str] = {}
        self._changed: set[str] = set()
        self._woken = self._closed = False
        self._condition = threading.Condition()
        self._pipe: tuple[int, int] | None = None
        self._namespaces: dict[str, _NamespaceWatch] = {}

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids; those just added count as changed."""
        with self._condition:
            if self._closed:
                return
            known = set(self._ids.values())
            self._ids = {(names.parse_app_id(each)[0], names.base_name(each)): each for each in app_ids}
            self._changed = (self._changed | (set(app_ids) - known)) & set(app_ids)
            wanted = {namespace for namespace, _ in self._ids}
            gone = [self._namespaces.pop(name) for name in set(self._namespaces) - wanted]
            for name in wanted - set(self._namespaces):
                self._namespaces[name] = _NamespaceWatch(self._cluster, name, self._seen)
            if self._changed:
                self._notify()
        for each in gone:
            each.close()

    def wait(self, timeout: float | None) -> set[str]:
        """Return ids that may have changed; block up to ``timeout`` seconds (None: no limit)."""
        with self._condition:
            self._condition.wait_for(lambda: self._changed or self._woken or self._closed, timeout)
            return self._take()

    def drain(self) -> set[str]:
        """Return ids that may have changed, without waiting."""
        with self._condition:
            return self._take()

    def fileno(self) -> int:
        """Return a descriptor that is readable while there is something to `drain`."""
        with self._condition:
            if self._pipe is None:
                self._pipe = os.pipe()
                for descriptor in self._pipe:
                    os.set_blocking(descriptor, False)
                if self._changed or self._woken:
                    self._notify()
            return self._pipe[0]

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""
        with self._condition:
            self._woken = True
            self._notify()

    def close(self) -> None:
        """End the threads and close the connections. May be called more than once."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            ending, self._namespaces = list(self._namespaces.values()), {}
            self._notify()
        for each in ending:
            each.close()
        with self._condition:
            for descriptor in self._pipe or ():
                os.close(descriptor)
            self._pipe = None

    def _take(self) -> set[str]:
        changed, self._changed, self._woken = self._changed, set(), False
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._pipe[0], 4096):
                    pass
        return changed

    def _notify(self) -> None:
        self._condition.notify_all()
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], b"x")

    def _seen(self, namespace: str, base: str | None) -> None:
        """Take note of a change of one app, or (None) of all of a namespace."""
        with self._condition:
            if self._closed:
                return
            if base is None:
                found = {app_id for (each, _), app_id in self._ids.items() if each == namespace}
            else:
                found = {app_id for app_id in (self._ids.get((namespace, base)),) if app_id is not None}
            if found - self._changed:
                self._changed |= found
                self._notify()


class _NamespaceWatch:
    """The thread and connection of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str, seen: Any) -> None:
        self._cluster, self._namespace, self._seen = cluster, namespace, seen
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._response: Any = None
        self._thread = threading.Thread(target=self._run, name="transload-kubernetes-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        with self._lock:
            response = self._response
        if response is not None:
            cut(response)
        self._thread.join(_END_S)

    def _run(self) -> None:
        version, pause = "", _FIRST_PAUSE_S
        while not self._stop.is_set():
            try:
                if not version:
                    selector = f"{names.LABEL_MANAGED}={names.MANAGED}"
                    found = self._cluster.list("Job", self._namespace, label_selector=selector, limit=1)
                    version = str(found["metadata"]["resourceVersion"])
                    self._seen(self._namespace, None)
                version = self._follow(version)
                pause = _FIRST_PAUSE_S
            except (ClusterError, SchedulerUnavailable, ConfigError) as exc:
                if isinstance(exc, ClusterError) and exc.status == 410:
                    version = ""
                    continue
                self._stop.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _follow(self, version: str) -> str:
        """Read events from a place on, until the connection ends; return the place then reached."""
        response = self._cluster.watch("Job", self._namespace, version, _SESSION_S)
        with self._lock:
            self._response = response
        try:
            if self._stop.is_set():
                return version
            for line in lines(response):
                event = json.loads(line)
                item = event["object"]
                if event["type"] == "ERROR":
                    raise ClusterError(
                        int(item.get("code") or 500), item.get("reason") or "", item.get("message") or ""
                    )
                version = item["metadata"].get("resourceVersion") or version
                if event["type"] != "BOOKMARK":
                    self._seen(self._namespace, (item["metadata"].get("labels") or {}).get(names.LABEL_APP))
        except (ClusterError, SchedulerUnavailable):
            raise
        except Exception as exc:  # however the stream breaks, it is opened again from the same place
            if not self._stop.is_set():
                raise SchedulerUnavailable(f"the watch broke off: {exc}") from exc
        finally:
            with self._lock:
                self._response = None
            cut(response)
        return version
