"""Find out why the cluster has ended a pod, and how often.

This is pure. The cluster marks a pod that it ends for its own reasons (condition
``DisruptionTarget``), and counts such ends of a replica. The pod is gone soon after its successor
is made. So the process that waits for the job notes the cause in the job's record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from transload.cli.quantities import duration_text
from transload.retries import ASKS_AGAIN
from transload.specs import AppState, ReplicaAttempt, RetryPolicy, Role
from transload_kubernetes import names, plan, states
from transload_kubernetes.plan import Facts, RolePlan

NOTED: Final = "interrupted."
"""Prefix of the record's keys for interruptions."""
MOST_NOTED: Final = 1000
"""So many interruptions of a job are noted at most, because a record holds at most 1 MiB."""
REQUESTED: Final = "requested"
"""The cause of an interruption of a pod that somebody has deleted."""
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
_OBEDIENT: Final = [ASKS_AGAIN, 128 + 9, 128 + 15]
"""Exit codes of a program that ends as the signals SIGTERM and SIGKILL, or a notice, ask for."""


def allowed(role: Role) -> int | None:
    """Return how often a role may be interrupted, or None for any number."""
    says_nothing = role.notice is None and not role.checkpoints
    if role.max_interruptions is None and says_nothing:
        return None
    return role.interruptions_allowed


def is_shared(role: Role) -> bool:
    """Tell whether an interruption of one replica starts others again, too.

    The role must have the policy that its Job follows.
    """
    return bool(allowed(role)) and role.retry_policy is not RetryPolicy.REPLICA


def failure_rules(role: Role) -> list[dict[str, Any]]:
    """Return the rules of a Job's ``podFailurePolicy`` for ends that are no failures."""
    limit = allowed(role)
    if limit == 0:
        return []
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    action = "FailJob" if is_shared(role) else "Ignore"  # the Job is then made again as a whole
    rules: list[dict[str, Any]] = [{"action": action, "onPodConditions": [disrupted]}]
    if limit is not None:
        codes = {"containerName": names.MAIN, "operator": "NotIn", "values": list(_OBEDIENT)}
        # a program that ends by itself with another code has failed, whoever wanted its place
        rules.insert(0, {"action": "Count", "onExitCodes": codes})
    return rules


def cause_of(pod: Mapping[str, Any], role: RolePlan, job: Mapping[str, Any]) -> str:
    """Return what has interrupted a pod, or ``""`` if it was not interrupted, or has failed.

    Args:
        pod: the pod.
        role: its role.
        job: its Job, or {} if that is gone.
    """
    if role.interruptions == 0 or (pod.get("status") or {}).get("phase") != "Failed":
        return ""
    disrupted = states.condition(dict(pod), "DisruptionTarget")
    if disrupted is None:
        return _cause_of_deletion(pod, role, job)
    code = states.program(pod, "terminated").get("exitCode")
    if role.interruptions is not None and code and code not in _OBEDIENT:
        return ""
    found = _REASONS.get(str(disrupted.get("reason")))
    return found or _BY_KUBELET.get(str(pod["status"].get("reason")), "evicted")


def _cause_of_deletion(pod: Mapping[str, Any], role: RolePlan, job: Mapping[str, Any]) -> str:
    """Return ``requested`` for a pod that somebody has deleted and whose program asks to go on.

    The cluster counts it as a failure. So that is only for a role of one replica whose Job ends
    with it. Then its owner makes the Job anew.
    """
    metadata = pod["metadata"]
    deleted = states.seconds(metadata.get("deletionTimestamp"))  # as of the end of its grace
    end = states.program(pod, "terminated")
    if deleted is None or end.get("exitCode") != ASKS_AGAIN or not _ends_with_pod(role, job):
        return ""
    noticed = deleted - float(metadata.get("deletionGracePeriodSeconds") or 0.0)
    ended = states.seconds(end.get("finishedAt"))
    if ended is None or ended < noticed - 1.0:  # times are whole seconds
        return ""
    return REQUESTED


def _ends_with_pod(role: RolePlan, job: Mapping[str, Any]) -> bool:
    """Tell whether a Job that nobody ends has one replica, and starts it once."""
    if role.interruptions is None or role.replicas != 1 or not job:
        return False
    if role.policy == RetryPolicy.REPLICA.value and role.retries:
        return False
    failure = states.condition(dict(job), "FailureTarget", "Failed") or {}
    is_ended = job["spec"].get("suspend") or job["metadata"].get("deletionTimestamp")
    is_of_set = names.JOBSET_RESTARTS in names.labels_of(job)
    return not (is_ended or is_of_set or failure.get("reason") == "DeadlineExceeded")


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The interruptions of a replica.

    Attributes:
        count: how many there were.
        known: those whose cause is known, oldest first.
        new: keys and values of the record for those that are not noted yet.
    """

    count: int
    known: list[ReplicaAttempt]
    new: dict[str, str]


def is_taken_back(pod: Mapping[str, Any], role: RolePlan) -> bool:
    """Tell whether a queue ends a pod that had begun, so that its Job waits again."""
    is_ending = bool(pod["metadata"].get("deletionTimestamp"))
    has_failed = states.condition(dict(pod), "DisruptionTarget") is not None
    return role.interruptions != 0 and is_ending and not has_failed and states.has_begun(pod)


def of_replica(
    facts: Facts,
    role: RolePlan,
    k: int,
    pods: list[dict[str, Any]],
    counted: int,
    *,
    job: Mapping[str, Any],
    waits_again: bool = False,
) -> Interrupted:
    """Return the interruptions of a replica.

    Args:
        facts: those of the job.
        role: its role.
        k: its number.
        pods: its pods that are there, oldest first.
        counted: how many the cluster had counted when it made the last one.
        job: its Job of the attempt that counts, or {} if there is none.
        waits_again: whether a queue has suspended its Job.
    """
    start = f"{NOTED}{names.role_label(role.name)}.{k}."
    noted = {key: text for key, text in facts.data.items() if key.startswith(start)}
    new: dict[str, str] = {}
    for pod in pods:
        cause = cause_of(pod, role, job)
        if waits_again and is_taken_back(pod, role):
            cause = "preempted"
        key = f"{start}{_made(pod)}.{pod['metadata']['name']}"
        if cause and key not in noted:
            new[key] = _as_text(pod, cause, facts)
    together = {**noted, **new}
    known = [_read(together[key]) for key in sorted(together)]
    if pods and cause_of(pods[-1], role, job):
        counted += 1
    return Interrupted(max(counted, len(known)), known, new)


def _made(pod: Mapping[str, Any]) -> str:
    return "".join(filter(str.isdigit, pod["metadata"].get("creationTimestamp") or ""))


def _as_text(pod: Mapping[str, Any], cause: str, facts: Facts) -> str:
    end = states.program(pod, "terminated")
    values = {
        "cause": cause,
        "code": states.exit_code(end.get("exitCode")),
        "start": states.seconds((end or states.program(pod, "running")).get("startedAt")),
        "end": states.seconds(end.get("finishedAt")),
        "step": facts.progress_of(pod).get("step"),
    }
    return json.dumps({name: value for name, value in values.items() if value is not None})


def _read(text: str) -> ReplicaAttempt:
    """Return what a record says of an interruption. Only the cause must be there."""
    try:
        values = json.loads(text)
        return ReplicaAttempt(
            AppState.CANCELLED,
            exit_code=values.get("code"),
            start_time=values.get("start"),
            end_time=values.get("end"),
            cause=str(values["cause"]),
            step=values.get("step"),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return ReplicaAttempt(AppState.CANCELLED, cause="evicted")


def text_of(interrupted: Interrupted, role: RolePlan) -> str:
    """Return what a status says of a replica that is started again after an interruption."""
    text = "was interrupted"
    if interrupted.known:
        last = interrupted.known[-1]
        text += f" ({last.cause})"
        if last.step is not None:
            text += f" at step {last.step:,}"
        if last.start_time is not None and last.end_time is not None:
            text += f" after {duration_text(last.end_time - last.start_time)}"
    text += f"; started again, interruption {interrupted.count}"
    if role.interruptions is not None:
        text += f" of {role.interruptions}"
    return text


def is_of_job(facts: Facts, job: Mapping[str, Any], role: RolePlan) -> bool:
    """Tell whether a Job has ended because one of its pods was interrupted."""
    failed = states.condition(dict(job), "Failed")
    if failed is None:
        return False
    if role.policy != "REPLICA" and failed.get("reason") == "PodFailurePolicy":
        return True
    return _ends_with_pod(role, job) and _was_requested(facts, job, role)


def _was_requested(facts: Facts, job: Mapping[str, Any], role: RolePlan) -> bool:
    """Tell whether the one pod of a Job was deleted, and asked to go on."""
    uid = job["metadata"].get("uid")
    for pod in facts.pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        if any(owner.get("uid") == uid for owner in owners) and cause_of(pod, role, job):
            return True
    # the pod goes soon after it has ended
    start = f"{NOTED}{names.role_label(role.name)}.0."
    pods = f"{job['metadata']['name']}-"
    noted = [
        (key.split(".")[-1], text) for key, text in facts.data.items() if key.startswith(start)
    ]
    return any(name.startswith(pods) and _read(text).cause == REQUESTED for name, text in noted)


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


def used_up(who: str, interrupted: Interrupted, role: RolePlan) -> str:
    """Return why a job fails whose replica was interrupted too often, or ``""`` if it was not."""
    if role.interruptions is None or interrupted.count <= role.interruptions:
        return ""
    cause = ""
    if interrupted.known:
        cause = f" ({interrupted.known[-1].cause})"
    return f"{who} was interrupted{cause}, and its {role.interruptions} interruptions are used up"
