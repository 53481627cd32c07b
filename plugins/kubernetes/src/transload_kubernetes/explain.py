"""Find out from events and logs why a job waits or has failed, if its objects do not say it."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload.keeper.failures import read_error
from transload.keeper.tracebacks import traceback_error
from transload.specs import AppState, AppStatus, ReplicaStatus
from transload_kubernetes import kueue, names, states
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.log_reading import last_moment
from transload_kubernetes.plan import Facts
from transload_kubernetes.results import error_of
from transload_kubernetes.roles import replica_pods

_WITHOUT_CAUSE: Final = ("Error: ErrImagePull", "Error: ImagePullBackOff")
"""Messages of a kubelet beside another one that names the image and what is wrong with it."""
_NEW_POD: Final = re.compile(r'pods "[^"]*" is forbidden')
"""Names a pod that could not be made, by another random name each time that it is tried."""
_TAIL: Final = 200  # lines of a program's log in which a traceback is looked for
_LAST_LINES: Final = 10  # lines of another container's log that are shown


def is_unexplained(status: AppStatus, facts: Facts) -> bool:
    """Tell whether a job waits, or failed before it ran, without a reason in its status."""
    if status.state is AppState.FAILED:
        replicas = [replica for role in status.roles for replica in role.replicas]
        return all(each.start_time is None and each.exit_code is None for each in replicas)
    if status.state not in (AppState.PENDING, AppState.SUBMITTED):
        return False
    is_suspended = any(map(states.is_suspended, (*facts.jobs, facts.jobset or {})))
    return not status.msg or is_suspended


def why_it_waits(cluster: Cluster, namespace: str, facts: Facts) -> list[str]:
    """Return what the cluster says about the object that a job waits for, or [] if it is silent."""
    item = _what_it_waits_for(facts)
    if item is None:
        return []
    is_queued = _is_in_queue(item)
    if is_queued:
        said = _said_by_kueue(cluster, namespace, item)
        if said:
            return [said]
    name = item["metadata"]["name"]
    mine = _warnings(cluster, namespace, name, item["metadata"]["uid"])
    if is_queued:
        # who may not read Workloads may read the events about them, whose names are similar
        kind = "jobset" if item is facts.jobset else "job"
        mine += _warnings_of_kueue(cluster, namespace, f"{kind}-{name}-")
    if not mine:
        return []
    mine = [event for event in mine if event.get("message") not in _WITHOUT_CAUSE] or mine
    event = max(reversed(mine), key=states.event_time)  # the cluster lists them by name
    text = f"{event.get('reason', '')}: {event.get('message', '')}"
    return [_NEW_POD.sub("its pod is forbidden", text)]


def _is_in_queue(item: dict[str, Any]) -> bool:
    """Tell whether an object is a Job or JobSet that waits in a queue."""
    return names.QUEUE in names.labels_of(item) and states.condition(item, "Suspended") is not None


def _said_by_kueue(cluster: Cluster, namespace: str, item: dict[str, Any]) -> str:
    """Return what the Workload of a Job or JobSet says, or ``""`` if it is silent or hidden."""
    selector = f"{kueue.LABEL_OF_JOB}={item['metadata']['uid']}"
    try:
        found = cluster.list("Workload", namespace, selector).get("items") or ()
    except ClusterError:
        return ""
    texts = map(kueue.why_it_waits, found)
    return next(filter(None, texts), "")


def _warnings(cluster: Cluster, namespace: str, name: str, uid: str) -> list[dict[str, Any]]:
    """Return the warnings about an object. Each attempt of a JobSet uses the same names for Jobs."""
    events = _events(cluster, namespace, f"involvedObject.name={name}")
    return [
        event for event in events if (event.get("involvedObject") or {}).get("uid") in (None, uid)
    ]


def _warnings_of_kueue(cluster: Cluster, namespace: str, start: str) -> list[dict[str, Any]]:
    """Return the warnings about Workloads whose names begin so."""
    events = _events(cluster, namespace, "involvedObject.kind=Workload")
    return [
        event
        for event in events
        if str((event.get("involvedObject") or {}).get("name")).startswith(start)
    ]


def _events(cluster: Cluster, namespace: str, fields: str) -> list[dict[str, Any]]:
    """Return warnings, or [] if this user may not read events."""
    try:
        events = cluster.list("Event", namespace, fields=fields).get("items") or ()
    except ClusterError:
        return []
    return [event for event in events if event.get("type") == "Warning"]


def _what_it_waits_for(facts: Facts) -> dict[str, Any] | None:
    """Return a waiting pod, else a Job, else the JobSet, or None if the job has none of them."""
    if facts.jobset is not None and states.is_suspended(facts.jobset):
        return facts.jobset  # its Jobs are suspended because it is
    pods = [pod for pod in facts.pods if states.pod_state(pod) is AppState.PENDING]
    return next(iter(pods or _current_jobs(facts)), facts.jobset)


def _current_jobs(facts: Facts) -> list[dict[str, Any]]:
    """Return the Jobs of a job, without those of earlier attempts, which a JobSet removes."""
    if facts.jobset is None:
        return facts.jobs
    attempt = (states.set_restarts(facts.jobset), 0)
    return [job for job in facts.jobs if names.attempt_of(job) == attempt]


def error_by_pod(
    cluster: Cluster, namespace: str, facts: Facts, bad: ReplicaStatus
) -> dict[str, str]:
    """Return a replica's error from a log, by the name of its pod, or {} if logs say no more."""
    pods = replica_pods(facts, bad.role, bad.id)
    if not pods:
        return {}
    with contextlib.suppress(SchedulerUnavailable):
        error = _error_in_logs(cluster, namespace, pods[-1], bad)
        if error is not None:
            return {pods[-1]["metadata"]["name"]: error}
    return {}


def _error_in_logs(
    cluster: Cluster, namespace: str, pod: dict[str, Any], bad: ReplicaStatus
) -> str | None:
    """Return the error in the logs of a pod, or None if the logs need not be read."""
    name = pod["metadata"]["name"]
    other, _ = states.other_failure(pod)
    if other:
        return _last_lines(cluster, namespace, name, other)
    if not error_of(pod) and bad.exit_code == 1:  # an interpreter exits with 1
        answer = cluster.log(namespace, name, names.MAIN, tail=_TAIL, timestamps=True)
        if answer:
            return traceback_error(last_moment(answer.data), mixed=True)
    return None


def _last_lines(cluster: Cluster, namespace: str, pod: str, container: str) -> str:
    """Return the last lines of a container that is not the program, as an error."""
    answer = cluster.log(namespace, pod, container, tail=_LAST_LINES)
    if not answer:
        return ""
    lines = answer.data.decode("utf-8", "replace").strip().splitlines()
    if not lines:
        return ""
    text = [lines[-1], "", f"last lines of container {container}:", *lines]
    return read_error("\n".join(text).encode())
