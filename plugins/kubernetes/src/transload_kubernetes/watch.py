"""Watch a cluster for jobs that may have changed.

There is one connection for each kind of object and namespace, for any number of jobs.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

from transload.schedulers import FedWatch, Feeder
from transload_kubernetes import names
from transload_kubernetes.cluster import MANAGED, Cluster, ClusterError, cut

_KINDS: Final = ("Job", "JobSet", "Pod", "Event")
_OPTIONAL: Final = ("Pod", "Event")  # may be refused
_SESSION_S: Final = 300
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


class ClusterWatch(FedWatch):
    """Reports which jobs may have changed.

    A broken watch resumes at its last place. If the server no longer knows that place (410), every
    watched job of the namespace counts as changed.

    Pods, and warnings about them, are watched because they say why a job waits. Without the right
    to watch them, such a change is noticed later.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(names.place)
        self._cluster = cluster
        self._namespaces: dict[str, list[Feeder]] = {}

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. New ids count as changed."""
        super().update(app_ids)
        wanted = {names.parse_app_id(app_id)[0] for app_id in app_ids}
        with self._condition:
            if self._closed:
                return
            gone = [
                feeder
                for name in set(self._namespaces) - wanted
                for feeder in self._namespaces.pop(name)
            ]
            for name in wanted - set(self._namespaces):
                self._namespaces[name] = [self._feeder(kind, name) for kind in _KINDS]
        for feeder in gone:
            feeder.stop()

    def end(self) -> None:
        """End the threads and close the connections."""
        with self._condition:
            namespaces = list(self._namespaces.values())
            self._namespaces.clear()
        for feeders in namespaces:
            for feeder in feeders:
                feeder.stop()

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
                    self.seen(namespace, None)
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
            self.feed_all(lambda key: _is_pod_of(pod, namespace, key))
        else:
            self.seen(namespace, names.labels_of(item).get(names.LABEL_APP))

    def seen(self, namespace: str, base: str | None) -> None:
        """Report a change of one job, or (None) of all jobs of a namespace."""
        if base is None:
            self.feed_all(lambda key: isinstance(key, tuple) and key[0] == namespace)
        else:
            self.feed((namespace, base))


def _is_pod_of(pod: str, namespace: str, key: object) -> bool:
    """Tell whether a pod's name begins with the base name of the job with this key."""
    if not isinstance(key, tuple) or key[0] != namespace:
        return False
    return pod.startswith(f"{key[1]}-")


def _selectors(kind: str) -> tuple[str | None, str | None]:
    """Return the label selector and the field selector for watching a kind of object.

    Events have no labels, so the fields select warnings about pods.
    """
    if kind == "Event":
        return None, "involvedObject.kind=Pod,type=Warning"
    return MANAGED, None
