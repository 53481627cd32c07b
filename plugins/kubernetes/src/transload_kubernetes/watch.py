"""Which apps may have changed: one connection for each kind of object and namespace, whatever the number of apps."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Final

from transload.schedulers import FedWatch, Feeder
from transload_kubernetes import names
from transload_kubernetes.cluster import Cluster, ClusterError, cut, lines

_SESSION_S: Final = 300
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0
_MANAGED: Final = f"{names.LABEL_MANAGED}={names.MANAGED}"


class ClusterWatch(FedWatch):
    """Tells which apps may have changed.

    A watch that breaks goes on where it was; where the server has forgotten that place (410) all is listed anew and
    every watched app of the namespace counts as changed.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(_key)
        self._cluster = cluster
        self._namespaces: dict[str, list[Feeder]] = {}

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids; those just added count as changed."""
        super().update(app_ids)
        wanted = {names.parse_app_id(app_id)[0] for app_id in app_ids}
        with self._condition:
            if self._closed:
                return
            gone = [feeder for name in set(self._namespaces) - wanted for feeder in self._namespaces.pop(name)]
            for name in wanted - set(self._namespaces):
                self._namespaces[name] = [self._feeder(kind, name) for kind in ("Job", "JobSet")]
        for feeder in gone:
            feeder.stop()

    def end(self) -> None:
        """End the threads and close the connections."""
        with self._condition:
            ending, self._namespaces = list(self._namespaces.values()), {}
        for feeders in ending:
            for feeder in feeders:
                feeder.stop()

    def _feeder(self, kind: str, namespace: str) -> Feeder:
        source = _Source(self._cluster, kind, namespace, self._seen)
        return Feeder(f"transload-kubernetes-{kind.lower()}s", source.read, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    def _seen(self, namespace: str, base: str | None) -> None:
        """Take note of a change of one app, or (None) of all of a namespace."""
        if base is None:
            self.feed_all(lambda key: isinstance(key, tuple) and key[0] == namespace)
        else:
            self.feed((namespace, base))


def _key(app_id: str) -> tuple[str, str]:
    return names.parse_app_id(app_id)[0], names.base_name(app_id)


class _Source:
    """The changes of one kind of object in one namespace; ``seen`` is told it and an app's label (None: any app)."""

    def __init__(self, cluster: Cluster, kind: str, namespace: str, seen: Callable[[str, str | None], None]) -> None:
        self._cluster, self._kind, self._namespace, self._seen = cluster, kind, namespace, seen
        self._version = ""

    def read(self, feeder: Feeder) -> None:
        """Read events until the connection ends."""
        try:
            if not self._version:
                if self._kind == "JobSet" and not self._cluster.has_jobsets(self._namespace):
                    return feeder.finish()
                found = self._cluster.list(self._kind, self._namespace, _MANAGED, limit=1)
                self._version = str(found["metadata"]["resourceVersion"])
                self._seen(self._namespace, None)
            self._follow(feeder)
        except ClusterError as exc:
            if exc.status == 410:
                self._version = ""
            raise

    def _follow(self, feeder: Feeder) -> None:
        response = self._cluster.watch(self._kind, self._namespace, self._version, _SESSION_S)
        if not feeder.opened(lambda: cut(response)):
            return
        for line in lines(response):
            event = json.loads(line)
            item = event["object"]
            if event["type"] == "ERROR":
                raise ClusterError(int(item.get("code") or 500), item.get("reason") or "", item.get("message") or "")
            self._version = item["metadata"].get("resourceVersion") or self._version
            if event["type"] != "BOOKMARK":
                self._seen(self._namespace, (item["metadata"].get("labels") or {}).get(names.LABEL_APP))
