"""Find out why the cluster has ended a pod, and how often.

This is pure. The cluster marks a pod that it ends for its own reasons (condition
``DisruptionTarget``), and counts such ends of a replica. They are not bounded. The pod is gone soon
after its successor is made, and the cause with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from transload.errors import UnsupportedFeature
from transload.specs import AppState, ReplicaAttempt, RetryPolicy, Role
from transload_kubernetes import names, plan, states
from transload_kubernetes.plan import Facts, RolePlan

_REASONS: Final = {
    "PreemptionByScheduler": "preempted",
    "EvictionByEvictionAPI": "drained",
    "DeletionByTaintManager": "node",
    "DeletionByPodGC": "node",
}
"""Reason of the condition ``DisruptionTarget`` → cause."""
_BY_KUBELET: Final = {
    "Evicted": "evicted",
    "Preempting": "preempted",
    "Terminated": "drained",
    "NodeShutdown": "drained",
    "Shutdown": "drained",
}
"""Reason of a pod's status, if its kubelet has ended it → cause."""


def refuse_bound(role: Role, path: str) -> None:
    """Raise an UnsupportedFeature for a role whose interruptions are to be bounded."""
    if role.max_interruptions is not None:
        field = f"{path}.max_interruptions"
        raise UnsupportedFeature(
            f"{field}={role.max_interruptions}: not possible on scheduler 'kubernetes': the cluster "
            "starts again what it has ended, any number of times; leave it out",
            field,
        )


def is_shared(role: Role) -> bool:
    """Tell whether an interruption of one replica starts others again, too.

    The role must have the policy that its Job follows.
    """
    goes_on = role.notice is not None or role.checkpoints
    return goes_on and role.retry_policy is not RetryPolicy.REPLICA


def failure_rule(role: Role) -> dict[str, Any]:
    """Return the rule of a Job's ``podFailurePolicy`` for ends that are no failures."""
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    action = "FailJob" if is_shared(role) else "Ignore"  # the Job is then made again as a whole
    return {"action": action, "onPodConditions": [disrupted]}


def cause_of(pod: Mapping[str, Any]) -> str:
    """Return what has interrupted a pod, or ``""`` if it was not interrupted."""
    if (pod.get("status") or {}).get("phase") != "Failed":
        return ""
    disrupted = states.condition(dict(pod), "DisruptionTarget")
    if disrupted is None:
        return ""
    found = _REASONS.get(str(disrupted.get("reason")))
    return found or _BY_KUBELET.get(str(pod["status"].get("reason")), "evicted")


def of_pods(pods: Sequence[dict[str, Any]]) -> list[ReplicaAttempt]:
    """Return the interrupted attempts among the pods of a replica that are there, oldest first."""
    return [_attempt_of(pod, cause) for pod in pods if (cause := cause_of(pod))]


def _attempt_of(pod: dict[str, Any], cause: str) -> ReplicaAttempt:
    end = states.program(pod, "terminated")
    return ReplicaAttempt(
        AppState.CANCELLED,
        exit_code=states.exit_code(end.get("exitCode")),
        start_time=states.seconds(end.get("startedAt")),
        end_time=states.seconds(end.get("finishedAt")),
        cause=cause,
    )


def text_of(last: ReplicaAttempt | None, count: int) -> str:
    """Return what a status says of a replica that is started again after an interruption.

    Args:
        last: the latest interruption, if its pod is still there.
        count: how many there were.
    """
    text = "was interrupted"
    if last is not None:
        text += f" ({last.cause})"
    return f"{text}, interruption {count}"


def is_of_job(job: Mapping[str, Any], role: RolePlan) -> bool:
    """Tell whether a Job has ended because one of its pods was interrupted."""
    failed = states.condition(dict(job), "Failed") or {}
    return role.policy != "REPLICA" and failed.get("reason") == "PodFailurePolicy"


def of_attempts(facts: Facts, role: RolePlan) -> int:
    """Return how many attempts of a role began because of an interruption, not of a failure."""
    if facts.jobset is not None:
        status = facts.jobset.get("status") or {}
        return states.set_restarts(facts.jobset) - int(status.get("restartsCountTowardsMax") or 0)
    label = names.role_label(role.name)
    start = f"{plan.MADE}{label}."
    values = [text for key, text in facts.data.items() if key.startswith(start)]
    counts = [values.count(plan.INTERRUPTED)]
    for job in facts.jobs:  # the process that has made the last one may have died before the note
        if names.labels_of(job).get(names.LABEL_ROLE) == label:
            counts.append(int(names.annotations_of(job).get(names.ANNOTATION_INTERRUPTIONS, "0")))
    return max(counts)
