"""Collect what the pods of a job reported, from their status or from the job's record. Pure."""

from __future__ import annotations

from typing import Any

from transload.errors import AppNotFound
from transload.runtime.tracking import ResultsGone
from transload.specs import AppState, AppStatus, ReplicaStatus
from transload_kubernetes import names, states
from transload_kubernetes.decide import decide
from transload_kubernetes.plan import Facts
from transload_kubernetes.results import PodStore
from transload_kubernetes.roles import replica_pods


def store_of(app_id: str, facts: Facts, now: float) -> PodStore | None:
    """Return the result files of a job, those of later attempts last.

    Args:
        app_id: the job.
        facts: the cluster's facts about it.
        now: the time by the cluster's clock.

    Returns:
        The files, or None if the job was given another place for them.

    Raises:
        ResultsGone: if what a replica reported was removed, or the record cannot be read.
        TrackingError: if a replica had more than a status holds.
    """
    if facts.unreadable:
        raise ResultsGone(f"the results of {app_id} cannot be read: {facts.unreadable}")
    if facts.plan is None:
        raise AppNotFound(app_id)
    if facts.plan.tracker_base is not None:
        return None
    store = PodStore(f"the pods of {app_id}")
    is_single = len(facts.plan.roles) == 1
    status = decide(facts, now).status
    for role in status.roles:
        for replica in role.replicas:
            _check_there(facts, status, replica)
            key = str(replica.id) if is_single else f"{role.role}/{replica.id}"
            for end in _ends(facts, role.role, replica.id):
                store.take_end(end, key, f"{role.role}/{replica.id}")
    return store


def _ends(facts: Facts, role: str, k: int) -> list[dict[str, Any]]:
    """Return the ends of a replica's programs, oldest first, as its pods or the record have them."""
    pods = replica_pods(facts, role, k)
    if not pods:
        return facts.ends(role, k)
    return [states.program(pod, "terminated") for pod in pods]


def _check_there(facts: Facts, status: AppStatus, replica: ReplicaStatus) -> None:
    """Raise ResultsGone if a replica has ended, and what it may have reported is not there.

    What is not there of a job that was cancelled went with its pods, as was asked.
    """
    assert facts.plan is not None
    role = replica.role
    has_run = replica.state is AppState.SUCCEEDED
    if status.state is AppState.FAILED and facts.is_complete:
        label = names.role_label(role)
        has_job = any(names.labels_of(job).get(names.LABEL_ROLE) == label for job in facts.jobs)
        has_run = has_run or replica.state is AppState.FAILED or not has_job
    if not has_run or facts.ends(role, replica.id):
        return
    pods = replica_pods(facts, role, replica.id)
    if any(_has_reported(pod, replica.state) for pod in pods):
        return
    why = "its pod was deleted, and what it had reported with it"
    seconds = facts.plan.cfg.get("ttl")
    if seconds is not None:
        why += f"; run option ttl={seconds} lets the cluster do that"
    raise ResultsGone(
        f"the results of {role}/{replica.id} of {facts.plan.app_id} cannot be read any more: "
        f"{why}; a tracker_base on a volume or in a store keeps them"
    )


def _has_reported(pod: dict[str, Any], state: AppState) -> bool:
    """Tell whether a pod has the end of a program that ended as its replica did."""
    code = states.program(pod, "terminated").get("exitCode")
    if state is AppState.SUCCEEDED:
        return code == 0
    return True
