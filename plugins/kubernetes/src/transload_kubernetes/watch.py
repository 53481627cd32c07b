"""Which apps may have changed: one connection for each kind of object and namespace, whatever the
number of apps.
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
    """Tells which apps may have changed.

    A watch that breaks goes on where it was; where the server has forgotten that place (410) all is
    listed anew and every watched app of the namespace counts as changed. Pods and warnings about
    them say why an app waits: neither its Jobs nor its JobSet change by that. Who may not watch
    them hears of it later.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(names.place)
        self._cluster = cluster
        self._namespaces: dict[str, list[Feeder]] = {}

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids; those just added count as changed."""
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
            ending, self._namespaces = (
                [each for some in self._namespaces.values() for each in some],
                {},
            )
        for feeder in ending:
            feeder.stop()

    def _feeder(self, kind: str, namespace: str) -> Feeder:
        version = ""

        def read(feeder: Feeder) -> None:
            """Read changes of one kind of object until the connection ends."""
            nonlocal version
            try:
                if not version:
                    if kind == "JobSet" and not self._cluster.has_jobsets(namespace):
                        return feeder.finish()
                    version = str(
                        self._cluster.list(kind, namespace, **_chosen(kind), limit=1)["metadata"][
                            "resourceVersion"
                        ]
                    )
                    self.seen(namespace, None)
                response = self._cluster.watch(
                    kind, namespace, version, _SESSION_S, **_chosen(kind)
                )
                for line in response if feeder.opened(lambda: cut(response)) else ():
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
                version = "" if exc.status == 410 else version
                if exc.status == 403 and kind in _OPTIONAL:
                    return feeder.finish()
                raise

        return Feeder(
            f"transload-kubernetes-{kind.lower()}s", read, _FIRST_PAUSE_S, _LONGEST_PAUSE_S
        )

    def _changed_by(self, kind: str, namespace: str, item: dict[str, Any]) -> None:
        """Take note of an object that has changed."""
        if kind == "Event":
            pod = str(
                (item.get("involvedObject") or {}).get("name")
            )  # its name begins with that of its app
            self.feed_all(
                lambda key: (
                    isinstance(key, tuple) and key[0] == namespace and pod.startswith(f"{key[1]}-")
                )
            )
        else:
            self.seen(namespace, (item["metadata"].get("labels") or {}).get(names.LABEL_APP))

    def seen(self, namespace: str, base: str | None) -> None:
        """Take note of a change of one app, or (None) of all of a namespace."""
        if base is None:
            self.feed_all(lambda key: isinstance(key, tuple) and key[0] == namespace)
        else:
            self.feed((namespace, base))


def _chosen(kind: str) -> dict[str, str]:
    """Return which objects of a kind are watched: ours, and warnings about pods, which have no
    labels.
    """
    if kind == "Event":
        return {"fieldSelector": "involvedObject.kind=Pod,type=Warning"}
    return {"labelSelector": MANAGED}
