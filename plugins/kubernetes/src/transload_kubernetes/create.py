"""Create the objects of a job, and resume those that were created on hold."""

from __future__ import annotations

import time
from typing import Any, Final

from transload.errors import SchedulerUnavailable, SubmitError
from transload_kubernetes import hold
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.plan import Facts

_AGAIN_S: Final = 0.5


def owned(item: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an object that the cluster deletes together with the job's record."""
    own = record["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": own["name"], "uid": own["uid"]}
    metadata = {**item["metadata"], "ownerReferences": [owner], "namespace": own["namespace"]}
    return {**item, "metadata": metadata}


def create(
    cluster: Cluster, namespace: str, item: dict[str, Any], *, only_try: bool = False
) -> dict[str, Any]:
    """Create an object, or return the one that another owner of the same job has created.

    Args:
        cluster: the cluster.
        namespace: that of the job.
        item: the object, `owned` by the record of its job.
        only_try: create nothing, but raise an error if the cluster says that it would refuse it.

    Raises:
        ClusterError: if the cluster refuses it.
        SubmitError: if an object of another owner has its name.
    """
    try:
        return cluster.create(item, namespace, only_try=only_try)
    except ClusterError as exc:
        if only_try and exc.status == 400 and "support dry run" in str(exc):
            return item  # a webhook of this cluster does not support the question
        if exc.status != 409:
            raise
        found = cluster.get(item["kind"], namespace, item["metadata"]["name"])
        if found is None:
            raise
        _refuse_other_owner(item, found, namespace, exc)
        return found


def _refuse_other_owner(
    item: dict[str, Any], found: dict[str, Any], namespace: str, cause: ClusterError
) -> None:
    """Raise a SubmitError unless an existing object belongs to the same record.

    Names follow from the job id, so another owner of the same job creates the same objects.
    """
    record = item["metadata"]["ownerReferences"][0]
    owners = found["metadata"].get("ownerReferences") or ()
    if record["uid"] in [owner.get("uid") for owner in owners]:
        return
    records = [owner.get("name") for owner in owners if owner.get("kind") == "ConfigMap"]
    is_left_over = record["name"] in records
    why = "another owner's, and this job needs that name; choose another job id or role name"
    if is_left_over:
        why = "left over from an earlier submit of this id, and is about to be removed; try again"
    what = f"{item['kind']} {item['metadata']['name']} of namespace {namespace}"
    raise SubmitError(f"{what} is {why}", transient=is_left_over) from cause


def let_run(
    cluster: Cluster, namespace: str, thing: dict[str, Any], facts: Facts, patience: float = 0.0
) -> None:
    """Resume a Job or JobSet that was held until its submit is complete, or give it to its queue.

    Args:
        cluster: the cluster.
        namespace: that of the job.
        thing: the object, as it was seen.
        facts: those of the job.
        patience: seconds for which to try again while the cluster cannot be reached.

    Raises:
        ClusterError: if the cluster refuses it.
        SchedulerUnavailable: if the cluster was unreachable for that long.
    """
    kind = "JobSet" if thing is facts.jobset else "Job"
    name = thing["metadata"]["name"]
    steps = hold.off(thing, facts)
    deadline = time.monotonic() + patience
    while True:
        try:
            cluster.change_if(kind, namespace, name, steps)
            return
        except (ClusterError, SchedulerUnavailable) as exc:
            if isinstance(exc, ClusterError) and exc.status in (403, 404, 422):
                found = cluster.get(kind, namespace, name)
                if found is None or not hold.is_held(found):
                    return  # another process has started it, or it was cancelled
                raise
            if not may_pass(exc) or time.monotonic() >= deadline:
                raise
        time.sleep(_AGAIN_S)


def may_pass(exc: ClusterError | SchedulerUnavailable) -> bool:
    """Tell whether a request that failed may succeed a little later."""
    if isinstance(exc, SchedulerUnavailable):
        return True
    return exc.status in (0, 429) or exc.status >= 500
