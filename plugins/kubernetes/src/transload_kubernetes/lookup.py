"""What a cluster tells of jobs. It only reads."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload_kubernetes import names, plan
from transload_kubernetes.cluster import MANAGED, Cluster, ClusterError
from transload_kubernetes.plan import Facts

_log = logging.getLogger("transload.kubernetes")
_FEW: Final = 40  # so many jobs are named in a query; more are found among all of a namespace


class Lookup:
    """Finds the records, Jobs and pods of jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._warned: set[str] = set()  # the places of which a warning was logged

    def facts(self, app_id: str) -> Facts:
        """Return what the cluster tells of one job."""
        namespace, base = names.place(app_id)
        return self.many(namespace, {base}).get((namespace, base), Facts())

    def many(
        self, namespace: str | None, bases: Collection[str] | None = None
    ) -> dict[tuple[str, str], Facts]:
        """Return what the cluster tells of many jobs, by namespace and base name.

        This takes three queries, four with JobSets.

        Args:
            namespace: where the jobs are; None: in all namespaces.
            bases: what the names of their objects start with; None: all jobs.
        """
        selector = MANAGED
        if bases is not None and len(bases) <= _FEW:
            selector = f"{names.LABEL_APP} in ({','.join(sorted(bases))})"
        found: dict[tuple[str, str], Facts] = {}
        for record in self.items("ConfigMap", namespace, f"{selector},{names.LABEL_RECORD}"):
            metadata = record["metadata"]
            found[metadata["namespace"], metadata["name"]] = Facts(record)
        if not any(facts.kind == plan.APP for facts in found.values()):
            return found
        # from the outside in: the Jobs of a JobSet that has ended are final, and the pods of a Job
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

    def all(self, namespaces: Collection[str]) -> dict[tuple[str, str], Facts]:
        """Return what the cluster tells of the jobs of all namespaces.

        Args:
            namespaces: the ones to ask for where this user may not list all.
        """
        try:
            return self.many(None)
        except SchedulerUnavailable as exc:
            if not _is_forbidden(exc):
                raise
            return self._some(namespaces, exc)

    def _some(
        self, namespaces: Collection[str], refused: SchedulerUnavailable
    ) -> dict[tuple[str, str], Facts]:
        """Return what the cluster tells of the jobs of some namespaces; raise if none is listed."""
        found: dict[tuple[str, str], Facts] = {}
        missed: set[str] = set()
        for namespace in namespaces:
            try:
                found.update(self.many(namespace))
            except SchedulerUnavailable:
                missed.add(namespace)
        if missed == {*namespaces}:
            raise refused
        more = f", nor {', '.join(missed)}" if missed else ""
        seen = ", ".join({*namespaces} - missed)
        _log.warning(
            "this user may not list the apps of all namespaces%s: only those of %s", more, seen
        )
        return found

    def items(self, kind: str, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        """Return the objects of a kind with these labels; a refusal is a SchedulerUnavailable."""
        try:
            return list(self._cluster.list(kind, namespace, selector).get("items") or ())
        except ClusterError as exc:
            raise SchedulerUnavailable(f"kubernetes at {self._cluster.url}: {exc}") from exc

    def _sets(self, namespace: str | None, selector: str) -> list[dict[str, Any]] | None:
        """Return JobSets; None if this user may not list them, of which one warning is logged."""
        try:
            return self.items("JobSet", namespace, selector)
        except SchedulerUnavailable as exc:
            if not _is_forbidden(exc):
                raise
        place = f"namespace {namespace}" if namespace else "all namespaces"
        if place not in self._warned:
            self._warned.add(place)
            _log.warning(
                "this user may not list the JobSets of %s: of these apps only the Jobs are seen",
                place,
            )
        return None


def base_of(item: dict[str, Any]) -> str:
    """Return the base name of the job that an object belongs to, by its label."""
    return str(names.labels_of(item).get(names.LABEL_APP, ""))


def _facts_of(item: dict[str, Any], found: dict[tuple[str, str], Facts]) -> Facts:
    """Return the facts that an object belongs to; new ones for an object without a record."""
    return found.get((item["metadata"]["namespace"], base_of(item)), Facts())


def _is_forbidden(exc: SchedulerUnavailable) -> bool:
    return isinstance(exc.__cause__, ClusterError) and exc.__cause__.status == 403
