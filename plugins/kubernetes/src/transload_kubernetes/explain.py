"""Find out from events and logs why a job waits or has failed, if its objects do not say it."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload.retries import read_error, traceback_error
from transload.specs import AppState, AppStatus, ReplicaStatus
from transload_kubernetes import advice, names, states
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.log_reading import last_moment
from transload_kubernetes.plan import Facts
from transload_kubernetes.results import error_of
from transload_kubernetes.roles import replica_pods

_WITHOUT_CAUSE: Final = ("Error: ErrImagePull", "Error: ImagePullBackOff")
"""Messages of a kubelet beside another one that names the image and what is wrong with it."""
_TAIL: Final = 200  # lines of a program's log in which a traceback is looked for
_LAST_LINES: Final = 10  # lines of another container's log that are shown


def is_unexplained(status: AppStatus) -> bool:
    """Tell whether a job waits, or failed before it ran, without a reason in its status."""
    if status.state is AppState.FAILED:
        replicas = [replica for role in status.roles for replica in role.replicas]
        return all(each.start_time is None and each.exit_code is None for each in replicas)
    if status.state not in (AppState.PENDING, AppState.SUBMITTED):
        return False
    return not status.msg or "suspended" in status.msg


def last_warning(cluster: Cluster, namespace: str, facts: Facts) -> list[str]:
    """Return the last warning about the object that a job waits for, or [] if there is none."""
    item = _what_it_waits_for(facts)
    if item is None:
        return []
    name = item["metadata"]["name"]
    start = name
    uids = {None, item["metadata"]["uid"]}
    selector = f"involvedObject.name={name}"
    if facts.plan and facts.plan.queued and states.condition(item, "Suspended"):
        # a queue reports about a Job or JobSet through a Workload with a similar name
        kind = "jobset" if item is facts.jobset else "job"
        start = f"{kind}-{name}-"
        uids = set()
        selector = "involvedObject.kind=Workload"
    try:
        events = cluster.list("Event", namespace, fields=selector).get("items") or ()
    except ClusterError:
        return []
    warnings = [event for event in events if event.get("type") == "Warning"]
    mine = [event for event in warnings if _is_about(event, start, uids)]
    if not mine:
        return []
    mine = [event for event in mine if event.get("message") not in _WITHOUT_CAUSE] or mine
    event = max(reversed(mine), key=states.event_time)  # the cluster lists them by name
    text = f"{event.get('reason', '')}: {event.get('message', '')}"
    if "PodSecurity" in text:
        text += advice.POD_SECURITY
    if "request > maximum capacity" in text:
        text += "; its queue has less in all, so it can never start"
    return [text]


def _what_it_waits_for(facts: Facts) -> dict[str, Any] | None:
    """Return a waiting pod, else a Job, else the JobSet, or None if the job has none of them."""
    pods = [pod for pod in facts.pods if states.pod_state(pod) is AppState.PENDING]
    return next(iter(pods or _current_jobs(facts)), facts.jobset)


def _current_jobs(facts: Facts) -> list[dict[str, Any]]:
    """Return the Jobs of a job, without those of earlier attempts, which a JobSet removes."""
    if facts.jobset is None:
        return facts.jobs
    attempt = (states.set_restarts(facts.jobset), 0)
    return [job for job in facts.jobs if names.attempt_of(job) == attempt]


def _is_about(event: dict[str, Any], start: str, uids: set[str | None]) -> bool:
    """Tell whether an event is about an object.

    Args:
        event: the event.
        start: how the name of the object begins.
        uids: the uids that the event may have. If empty, any may be. Each attempt of a JobSet uses
            the same names for its Jobs.
    """
    about = event.get("involvedObject") or {}
    if not str(about.get("name")).startswith(start):
        return False
    return not uids or about.get("uid") in uids


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
