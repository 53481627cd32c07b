"""Watch a cluster for jobs that may have changed.

There is one connection for each kind of object and namespace, for any number of jobs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection
from typing import Any, Final

from transload.schedulers import Feeder
from transload_kubernetes import names
from transload_kubernetes.cluster import MANAGED, Cluster, ClusterError, cut

_KINDS: Final = ("Job", "JobSet", "Pod", "Event")
_OPTIONAL: Final = ("Pod", "Event")  # may be refused
_SESSION_S: Final = 300
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


class ClusterWatch:
    """Reports which jobs may have changed.

    A broken watch resumes at its last place. If the server no longer knows that place (410), every
    watched job of the namespace counts as changed.

    Pods, and warnings about them, are watched because they say why a job waits. Without the right
    to watch them, such a change is noticed later.

    Args:
        cluster: the cluster.
        changed: takes the ids of jobs that may have changed.
    """

    def __init__(self, cluster: Cluster, changed: Callable[[Collection[str]], object]) -> None:
        self._cluster = cluster
        self._changed = changed
        self._ids: dict[tuple[str, str], str] = {}  # namespace and base name → job id
        self._lock = threading.Lock()
        self._namespaces: dict[str, list[Feeder]] = {}

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids."""
        self._ids = {names.place(app_id): app_id for app_id in app_ids}
        wanted = {namespace for namespace, _ in self._ids}
        with self._lock:
            gone = [
                feeder
                for name in set(self._namespaces) - wanted
                for feeder in self._namespaces.pop(name)
            ]
            for name in wanted - set(self._namespaces):
                self._namespaces[name] = [self._feeder(kind, name) for kind in _KINDS]
        for feeder in gone:
            feeder.stop()

    def close(self) -> None:
        """End the threads and close the connections."""
        self.update(())

    def _feeder(self, kind: str, namespace: str) -> Feeder:
        version = ""
        labels, fields = _selectors(kind)

        def read(feeder: Feeder) -> None:
            """Read changes of one kind of object until the connection ends."""
            nonlocal version
            try:
                if not version:
                    if kind == "JobSet" and not self._cluster.has_jobsets(namespace):
                        feeder.finish()
                        return
                    found = self._cluster.list(kind, namespace, labels, fields=fields, limit=1)
                    version = str(found["metadata"]["resourceVersion"])
                    self._all_changed(namespace)
                response = self._cluster.watch(
                    kind, namespace, version, _SESSION_S, labels=labels, fields=fields
                )
                if not feeder.opened(lambda: cut(response)):
                    return
                for line in response:
                    event = json.loads(line)
                    item = event["object"]
                    if event["type"] == "ERROR":
                        code = int(item.get("code") or 500)
                        raise ClusterError(
                            code, item.get("reason") or "", item.get("message") or ""
                        )
                    version = item["metadata"].get("resourceVersion") or version
                    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        self._changed_by(kind, namespace, item)
            except ClusterError as exc:
                if exc.status == 410:
                    version = ""
                if exc.status == 403 and kind in _OPTIONAL:
                    feeder.finish()
                    return
                raise

        return Feeder(
            f"transload-kubernetes-{kind.lower()}s", read, _FIRST_PAUSE_S, _LONGEST_PAUSE_S
        )

    def _changed_by(self, kind: str, namespace: str, item: dict[str, Any]) -> None:
        """Report the job of an object that has changed."""
        if kind == "Event":
            pod = str((item.get("involvedObject") or {}).get("name"))
            of_pod = [
                app_id
                for (space, base), app_id in self._ids.items()
                if space == namespace and pod.startswith(f"{base}-")
            ]
            self._changed(of_pod)
            return
        base = names.labels_of(item).get(names.LABEL_APP)
        if base is None:
            self._all_changed(namespace)
        elif (namespace, base) in self._ids:
            self._changed([self._ids[namespace, base]])

    def _all_changed(self, namespace: str) -> None:
        """Report all jobs of a namespace."""
        self._changed([app_id for (space, _), app_id in self._ids.items() if space == namespace])


def _selectors(kind: str) -> tuple[str | None, str | None]:
    """Return the label selector and the field selector for watching a kind of object.

    Events have no labels, so the fields select warnings about pods.
    """
    if kind == "Event":
        return None, "involvedObject.kind=Pod,type=Warning"
    return MANAGED, None
