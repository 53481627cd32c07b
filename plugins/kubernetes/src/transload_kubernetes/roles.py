"""Work out the status of each role, by the Jobs and pods that count.

This is pure. The same facts give the same view.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from transload.keeper.failures import ASKS_AGAIN, error_line
from transload.specs import (
    NONE,
    AppState,
    ReplicaAttempt,
    ReplicaStatus,
    exit_text,
    is_terminal,
)
from transload_kubernetes import hold, interruptions, names, states
from transload_kubernetes.names import Attempt
from transload_kubernetes.plan import Facts, RolePlan
from transload_kubernetes.results import error_of

_MADE_AGAIN_S: Final = 30.0
"""Seconds after its JobSet within which the first Job is made. A later Job replaces it."""


@dataclass(slots=True)
class RoleView:
    """The status of a role.

    Attributes:
        plan: how the role is run.
        attempt: the attempt that counts.
        job: the role's Job of that attempt, or {} if there is none.
        replicas: the status of each replica.
        reasons: why the role waits or has failed.
        causes: by replica, the cause of a failure that is not the exit code of its program.
        shared: how many attempts of the role began because of an interruption.
        is_interrupted: whether its Job has ended because of an interruption.
        role_restarts: how often the role was restarted without the other roles.
        finished: whether its Job has ended.
        succeeded: whether its Job has ended, and enough replicas succeeded.
        failed: whether its Job has ended, and too few replicas succeeded.
        timed_out: whether its Job exceeded its time limit.
    """

    plan: RolePlan
    attempt: Attempt = (0, 0)
    job: dict[str, Any] = field(default_factory=dict)
    replicas: list[ReplicaStatus] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    causes: dict[int, str] = field(default_factory=dict)
    shared: int = 0
    is_interrupted: bool = False
    role_restarts: int = 0
    finished: bool = False
    succeeded: bool = False
    failed: bool = False
    timed_out: bool = False


def view_role(role: RolePlan, facts: Facts, *, stopping: bool) -> RoleView:
    """Return the view of a role.

    Args:
        role: the role.
        facts: those of its job.
        stopping: whether the job is being ended.
    """
    jobs = {names.attempt_of(job): job for job in _of_role(facts.jobs, role.name)}
    attempts = {*jobs, *facts.made(role.name)}
    view = RoleView(plan=role, attempt=max(attempts, default=(0, 0)))
    view.role_restarts = sum(attempt[1] > 0 for attempt in attempts)
    if facts.jobset is not None:
        # the JobSet says which attempt counts, because Jobs of earlier attempts are being removed
        view.attempt = (states.set_restarts(facts.jobset), 0)
    view.job = jobs.get(view.attempt, {})
    view.shared = interruptions.of_attempts(facts, role)
    view.is_interrupted = interruptions.is_of_job(view.job, role)
    view.finished = states.is_finished(view.job)
    failure = states.condition(view.job, "Failed") or {}
    view.timed_out = failure.get("reason") == "DeadlineExceeded"
    view.replicas = _replicas(view, facts, stopping=stopping)
    succeeded = [each for each in view.replicas if each.state is AppState.SUCCEEDED]
    if view.finished:
        view.succeeded = len(succeeded) >= role.needed
        view.failed = not view.succeeded
    elif _is_suspended(view, facts):
        what = f"the Job of role {role.name}"
        view.reasons.append(suspended_text(what, facts.jobset or view.job))
    return view


def suspended_text(what: str, thing: dict[str, Any]) -> str:
    """Return what a status says of a Job or JobSet that somebody has suspended, such as a queue."""
    queue = names.labels_of(thing).get(names.QUEUE)
    if queue:
        return f"it waits in queue {queue}"
    return f"{what} is suspended"


def replica_pods(facts: Facts, role: str, k: int) -> list[dict[str, Any]]:
    """Return all pods of a replica, of all attempts, oldest first."""
    pods = [pod for pod in _of_role(facts.pods, role) if states.index_of(pod) == k]
    return sorted(pods, key=_age)


def running_state(views: list[RoleView]) -> AppState:
    """Return the state of a job that has not ended."""
    seen = {replica.state for view in views for replica in view.replicas}
    if AppState.RUNNING in seen:
        return AppState.RUNNING
    if seen == {AppState.UNKNOWN}:
        return AppState.UNKNOWN
    some_ended = bool(seen & {AppState.SUCCEEDED, AppState.FAILED})
    some_wait = bool(seen & {AppState.PENDING, AppState.SUBMITTED})
    if some_ended and (not some_wait or any(map(_runs_in_turns, views))):
        # all have ended, but the Job has not reported it or not started the next replicas yet
        return AppState.RUNNING
    if seen <= {AppState.SUBMITTED}:
        return AppState.SUBMITTED
    return AppState.PENDING


def _of_role(things: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    """Return the Jobs or pods of a role."""
    wanted = names.role_label(role)
    return [each for each in things if names.labels_of(each).get(names.LABEL_ROLE) == wanted]


def _age(pod: dict[str, Any]) -> tuple[Attempt, str, int, str]:
    """Return the sort key of a replica's pods by age.

    Times are whole seconds. For two pods of the same second, it decides how many ended before them.
    """
    metadata = pod["metadata"]
    made = metadata.get("creationTimestamp") or ""
    before = _failures_before(pod) + _disruptions_before(pod)
    return names.attempt_of(pod), made, before, metadata["name"]


def _runs_in_turns(view: RoleView) -> bool:
    """Tell whether a queue has admitted only a part of a role, so that replicas take turns."""
    spec = view.job.get("spec") or {}
    if spec.get("suspend"):
        return False
    return bool(spec.get("parallelism", view.plan.replicas) < view.plan.replicas)


def _replicas(view: RoleView, facts: Facts, *, stopping: bool) -> list[ReplicaStatus]:
    """Return the status of each replica of a role."""
    status = view.job.get("status") or {}
    completed = states.indexes(status.get("completedIndexes"))
    failed = states.indexes(status.get("failedIndexes"))
    made_again = int(_was_made_again(view, facts))
    found: list[ReplicaStatus] = []
    for k in range(view.plan.replicas):
        all_pods = replica_pods(facts, view.plan.name, k)
        pods = [pod for pod in all_pods if names.attempt_of(pod) == view.attempt]
        pod = pods[-1] if pods else None
        state = _replica_state(
            view, facts, pod, done=k in completed, failed=k in failed, stopping=stopping
        )
        replica = ReplicaStatus(k, state, view.plan.name, "")
        replica.restarts = max(0, sum(view.attempt) - view.shared)
        replica.restarts += _restarts_of(pods, view)
        if _is_suspended(view, facts) and pod is not None and interruptions.cause_of(pod):
            # that it was interrupted is said once it runs again, and till then why it waits
            all_pods = [each for each in all_pods if each is not pod]
            _add_interruptions(replica, view, pods[:-1], interruptions.of_pods(all_pods))
        else:
            _add_interruptions(replica, view, pods, interruptions.of_pods(all_pods))
        if pod is not None:
            _describe_by_pod(replica, view, facts, pod)
        elif state is AppState.SUCCEEDED:
            replica.exit_code = 0  # the pod is gone, but only exit code 0 is a success
        if state is AppState.FAILED and _was_deleted(pod):
            end = exit_text(replica.exit_code)
            view.causes[k] = f"{end}: another user or program deleted its pod"
        replica.restarts += made_again
        attempt = states.attempt_of_program(pod) if pod is not None else None
        if attempt != replica.restarts:
            replica.attempt = attempt
        found.append(replica)
    return found


def _was_made_again(view: RoleView, facts: Facts) -> bool:
    """Tell whether a JobSet has replaced a deleted Job, which it does not report."""
    if facts.jobset is None or not view.job or view.attempt != (0, 0):
        return False
    job_made = states.seconds(view.job["metadata"].get("creationTimestamp"))
    set_made = states.seconds(facts.jobset["metadata"].get("creationTimestamp"))
    if not job_made or not set_made:
        return False
    return job_made - set_made > _MADE_AGAIN_S


def _replica_state(
    view: RoleView,
    facts: Facts,
    pod: dict[str, Any] | None,
    *,
    done: bool,
    failed: bool,
    stopping: bool,
) -> AppState:
    """Return the state of a replica.

    Args:
        view: its role.
        facts: the facts of the job.
        pod: its last pod of the attempt that counts, or None if there is none.
        done: whether the Job says that it has succeeded.
        failed: whether the Job says that it has failed for good.
        stopping: whether the job is being ended.
    """
    if done:
        return AppState.SUCCEEDED
    seen = _state_of_pod(pod)
    by_itself = _ended_by_itself(pod)
    if stopping and by_itself and seen is AppState.SUCCEEDED:
        return seen
    cannot_run = not view.job or view.job["spec"].get("suspend") or hold.is_finishing(view.job)
    if stopping and cannot_run and not by_itself:
        has_ended = pod is None or not states.is_active(pod)
        return AppState.CANCELLED if has_ended else seen
    if failed and view.is_interrupted and view.plan.replicas == 1:
        return AppState.CANCELLED
    if failed:
        return AppState.FAILED
    if view.finished and pod is not None and interruptions.cause_of(pod):
        return AppState.CANCELLED
    if seen is AppState.FAILED and (view.finished or _is_final(view, pod)):
        return AppState.FAILED
    if view.finished:
        return AppState.CANCELLED
    if seen is AppState.FAILED:
        return AppState.PENDING  # its Job will replace it
    if seen is AppState.SUBMITTED and _is_suspended(view, facts):
        return AppState.PENDING  # its Job may be resumed
    return seen


def _ended_by_itself(pod: dict[str, Any] | None) -> bool:
    """Tell whether a pod has ended, and nobody has deleted it."""
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return False
    return not states.is_active(pod)


def _state_of_pod(pod: dict[str, Any] | None) -> AppState:
    if pod is None:
        return AppState.SUBMITTED
    if states.still_running(pod):
        return AppState.RUNNING  # in any phase, since some containers still run
    return states.pod_state(pod)


def _restarts_of(pods: list[dict[str, Any]], view: RoleView) -> int:
    """Return how often the Job has replaced the pod of a replica after a failure."""
    if not pods:
        return 0
    failed = [pod for pod in pods[:-1] if not interruptions.cause_of(pod)]
    return max(len(failed), _failures_before(pods[-1]))


def _add_interruptions(
    replica: ReplicaStatus,
    view: RoleView,
    pods: list[dict[str, Any]],
    known: list[ReplicaAttempt],
) -> None:
    """Add to a replica's status how often it was interrupted, and why as far as pods tell.

    Args:
        replica: the status.
        view: its role.
        pods: its pods of the attempt that counts, oldest first.
        known: its interruptions of which the pods are still there.
    """
    count = view.shared
    if pods:
        count += _disruptions_before(pods[-1]) + bool(interruptions.cause_of(pods[-1]))
    count = max(count, len(known))
    if not count:
        return
    replica.interruptions = count
    replica.earlier = known
    is_waiting = replica.state in (AppState.PENDING, AppState.SUBMITTED)
    if is_waiting or (view.is_interrupted and replica.state is AppState.CANCELLED):
        last = known[-1] if known else None
        who = f"{view.plan.name}/{replica.id}"
        view.reasons.append(f"{who} {interruptions.text_of(last, count)}")


def _was_deleted(pod: dict[str, Any] | None) -> bool:
    """Tell whether a user or program has deleted a pod, rather than the cluster itself."""
    if pod is None:
        return True
    if not pod["metadata"].get("deletionTimestamp"):
        return False
    return states.condition(pod, "DisruptionTarget") is None


def _is_suspended(view: RoleView, facts: Facts) -> bool:
    """Tell whether a user or a queue has suspended a role's Job, rather than its submit."""
    if not states.is_suspended(view.job) or hold.is_held(facts.jobset or view.job):
        return False
    # a JobSet that is not suspended is about to resume its Jobs
    return facts.jobset is None or states.is_suspended(facts.jobset)


def _is_final(view: RoleView, pod: dict[str, Any] | None) -> bool:
    """Tell whether the Job will give up the replica after this failure.

    The Job itself counts the failure only a second later. A pod that was interrupted has not
    failed, nor has one that is deleted because its Job is suspended: only the Job says of a deleted
    pod whether it has.
    """
    limit = view.job.get("spec", {}).get("backoffLimitPerIndex")
    if limit is None or pod is None or pod["metadata"].get("deletionTimestamp"):
        return False
    if interruptions.cause_of(pod):
        return False
    return bool(_failures_before(pod) >= limit)


def _failures_before(pod: dict[str, Any]) -> int:
    """Return how often the replica had failed before this pod was made."""
    return int(names.annotations_of(pod).get(names.INDEX_FAILURES) or 0)


def _disruptions_before(pod: dict[str, Any]) -> int:
    """Return how often the cluster had disrupted the replica before this pod was made."""
    return int(names.annotations_of(pod).get(names.INDEX_IGNORED) or 0)


def _describe_by_pod(
    replica: ReplicaStatus, view: RoleView, facts: Facts, pod: dict[str, Any]
) -> None:
    """Fill in a replica's status from its pod, and why the replica waits or has failed."""
    replica.hostname = (pod.get("spec") or {}).get("nodeName") or ""
    program_end = states.program(pod, "terminated")
    started = program_end or states.program(pod, "running")
    replica.start_time = states.seconds(started.get("startedAt"))
    other, other_end = states.other_failure(pod)
    end = other_end or program_end
    code = states.exit_code(end.get("exitCode"))
    if is_terminal(replica.state) and end:
        replica.exit_code = code
        replica.end_time = states.seconds(end.get("finishedAt"))
    other_failure = ""
    if other:
        other_failure = f"container {other} {exit_text(code)}"
    if other_failure and replica.state is AppState.FAILED:
        view.causes[replica.id] = other_failure
    left = states.still_running(pod)
    why = ""
    if left and not is_terminal(replica.state):
        why = f"its program has ended ({code}), but container {', '.join(left)} still runs"
    elif replica.state is AppState.PENDING:
        why = other_failure or states.stuck(pod)
    elif replica.state is AppState.FAILED:
        error = facts.causes.get(pod["metadata"]["name"]) or error_of(pod)
        replica.structured_error_msg = error or NONE
        asks_again = ""
        if code == ASKS_AGAIN:
            asks_again = f"exit code {code} is a failure like any other here"
        parts = [error_line(error), states.why_failed(pod), asks_again]
        why = "; ".join(part for part in parts if part)
    elif replica.state is AppState.RUNNING:
        why = states.lost_node(pod)
    if why:
        view.reasons.append(f"{view.plan.name}/{replica.id}: {why}")
