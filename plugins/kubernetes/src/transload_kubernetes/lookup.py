"""Read what a cluster says about jobs. Nothing here changes the cluster."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload_kubernetes import advice, names, plan
from transload_kubernetes.cluster import MANAGED, Cluster, ClusterError
from transload_kubernetes.plan import Facts

_log = logging.getLogger("transload.kubernetes")
_FEW: Final = 40  # a query names up to this many jobs, else lists the namespace


class Lookup:
    """Finds the records, Jobs and pods of jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._warned: set[str] = set()  # the places for which a warning was logged

    def facts(self, app_id: str) -> Facts:
        """Return the facts of one job."""
        namespace, base = names.place(app_id)
        return self.many(namespace, {base}).get((namespace, base), Facts())

    def many(
        self, namespace: str | None, bases: Collection[str] | None = None
    ) -> dict[tuple[str, str], Facts]:
        """Return the facts of many jobs, by namespace and base name.

        This takes three queries, or four with JobSets.

        Args:
            namespace: the namespace of the jobs, or None for all namespaces.
            bases: the prefixes of the names of their objects, or None for all jobs.
        """
        selector = MANAGED
        if bases is not None and len(bases) <= _FEW:
            selector = f"{names.LABEL_APP} in ({','.join(sorted(bases))})"
        return self._selected(namespace, selector)

    def chain(self, namespace: str, label: str) -> dict[tuple[str, str], Facts]:
        """Return the facts of the jobs of a chain, by namespace and base name.

        One query says that there are none.

        Args:
            namespace: the namespace of the jobs.
            label: from `names.chain_label`.
        """
        return self._selected(namespace, f"{names.LABEL_CHAIN}={label}")

    def _selected(self, namespace: str | None, selector: str) -> dict[tuple[str, str], Facts]:
        found: dict[tuple[str, str], Facts] = {}
        for record in self.items("ConfigMap", namespace, f"{selector},{names.LABEL_RECORD}"):
            metadata = record["metadata"]
            found[metadata["namespace"], metadata["name"]] = Facts(record)
        if not any(facts.kind == plan.APP for facts in found.values()):
            return found
        # in this order, because the Jobs of an ended JobSet and the pods of an ended Job are final
        with_set = [facts for facts in found.values() if facts.plan and facts.plan.jobset]
        if with_set:
            sets = self._sets(namespace, selector)
            for facts in with_set:
                facts.set_hidden = sets is None
            for item in sets or ():
                _facts_of(item, found).jobset = item
        for item in self.items("Job", namespace, selector):
            _facts_of(item, found).jobs.append(item)
        for item in self.items("Pod", namespace, selector):
            _facts_of(item, found).pods.append(item)
        return found

    def all(self, instead: str) -> dict[tuple[str, str], Facts]:
        """Return the facts of the jobs in all namespaces.

        Args:
            instead: the namespace to read if this user may not list all.
        """
        try:
            return self.many(None)
        except SchedulerUnavailable as exc:
            if not _is_forbidden(exc):
                raise
        found = self.many(instead)
        _log.warning(
            "this user may not list the jobs of all namespaces; listed are those of %s", instead
        )
        return found

    def items(self, kind: str, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        """Return the objects of a kind with these labels.

        Raises:
            SchedulerUnavailable: if the cluster refuses.
        """
        try:
            return list(self._cluster.list(kind, namespace, selector).get("items") or ())
        except ClusterError as exc:
            text = f"kubernetes at {self._cluster.url}: {exc}{advice.on_error(exc)}"
            raise SchedulerUnavailable(text) from exc

    def _sets(self, namespace: str | None, selector: str) -> list[dict[str, Any]] | None:
        """Return JobSets, or None, with one warning, if this user may not list them."""
        try:
            return self.items("JobSet", namespace, selector)
        except SchedulerUnavailable as exc:
            if not _is_forbidden(exc):
                raise
        place = "all namespaces"
        if namespace:
            place = f"namespace {namespace}"
        if place not in self._warned:
            self._warned.add(place)
            _log.warning(
                "this user may not list the JobSets of %s, so only their Jobs are seen", place
            )
        return None


def base_of(item: dict[str, Any]) -> str:
    """Return the base name of the job to which an object belongs, from its label."""
    return str(names.labels_of(item).get(names.LABEL_APP, ""))


def _facts_of(item: dict[str, Any], found: dict[tuple[str, str], Facts]) -> Facts:
    """Return the facts to which an object belongs, or new ones if it has no record."""
    return found.get((item["metadata"]["namespace"], base_of(item)), Facts())


def _is_forbidden(exc: SchedulerUnavailable) -> bool:
    return isinstance(exc.__cause__, ClusterError) and exc.__cause__.status == 403
