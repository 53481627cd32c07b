"""What the facts of a cluster mean for an app, and what is to be done about it. Pure: same facts, same verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from transload.specs import AppState, AppStatus, ReplicaStatus, RoleStatus, exit_text, is_terminal
from transload_kubernetes import names, states
from transload_kubernetes.names import Attempt
from transload_kubernetes.plan import Facts, Plan, RolePlan, Stop

HALF_SUBMITTED_S: Final = 120.0
"""Seconds after which an app whose submitter never finished counts as failed."""


@dataclass(slots=True)
class Verdict:
    """What an app is doing, and what whoever looks at it is to do.

    Args:
        status: its status.
        stop: note this in its record.
        restart: Jobs to make: name of the role and attempt.
        end: names of Jobs to delete, with their pods.
        note: note the status as final.
    """

    status: AppStatus
    stop: Stop | None = None
    restart: list[tuple[str, Attempt]] = field(default_factory=list)
    end: list[str] = field(default_factory=list)
    note: bool = False

    def to_do(self) -> bool:
        """Tell whether anything is to be done."""
        return bool(self.stop or self.restart or self.end or self.note)


@dataclass(slots=True)
class _RoleView:
    plan: RolePlan
    attempt: Attempt = (0, 0)
    job: dict[str, Any] | None = None
    replicas: list[ReplicaStatus] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    earlier: int = 0

    @property
    def finished(self) -> bool:
        return self.job is not None and states.is_finished(self.job)

    @property
    def good(self) -> bool:
        return self.finished and sum(r.state is AppState.SUCCEEDED for r in self.replicas) >= self.plan.needed

    @property
    def failed(self) -> bool:
        return self.finished and not self.good

    @property
    def late(self) -> bool:
        found = states.condition(self.job or {}, "Failed")
        return found is not None and found.get("reason") == "DeadlineExceeded"


def judge(facts: Facts, now: float) -> Verdict:
    """Return the verdict on an app that has a record.

    Args:
        facts: what the cluster tells.
        now: seconds since the epoch.

    Raises:
        ValueError: if its record cannot be read.
    """
    plan = facts.plan()
    assert plan is not None
    ended, stop = facts.ended(), facts.stop()
    if ended is not None:
        return Verdict(ended, end=_unfinished(facts))
    views = [_view(role, facts, bool(stop)) for role in plan.roles]
    status = AppStatus(_running_state(views), roles=[RoleStatus(v.plan.name, v.replicas) for v in views])
    status.num_restarts = _restarts(views)
    if stop is not None:
        return _stopped(status, stop, facts)
    if all(view.good for view in views):
        status.state = AppState.SUCCEEDED
        return Verdict(status, note=True)
    status.msg = "; ".join(dict.fromkeys(reason for view in views for reason in view.reasons)) or "; ".join(facts.notes)
    missing = _half_restarted(views)
    if missing:
        status.state = AppState.PENDING
        return Verdict(status, restart=missing)
    failure = _failure(plan, views, facts, now)
    if failure is None:
        return Verdict(status)
    restart = _restart(plan, views) if failure.retry else []
    if restart:
        return _restarted(status, restart, views)
    verdict = _stopped(status, Stop("failed", failure.msg), facts)
    verdict.stop = Stop("failed", failure.msg)
    return verdict


@dataclass(frozen=True, slots=True)
class _Failure:
    msg: str
    retry: bool = False


def _failure(plan: Plan, views: list[_RoleView], facts: Facts, now: float) -> _Failure | None:
    """Return why the app cannot go on as it is, or None."""
    if not facts.submitted():
        if now - plan.created > HALF_SUBMITTED_S:
            return _Failure("it was never wholly submitted: the submitting process ended in the middle of it")
        return None
    for view in views:
        if view.failed:
            return _Failure(_failure_text(view), retry=not view.late)
    for view in views:
        if view.job is None:
            return _Failure(f"lost: the Job of role {view.plan.name} was deleted by somebody")
    starts = [states.seconds((job.get("status") or {}).get("startTime")) for job in facts.jobs]
    first = min((start for start in starts if start is not None), default=None)
    if plan.timeout is not None and first is not None and now - first > plan.timeout + 1:
        return _Failure(f"timeout: took longer than {plan.timeout:g} seconds")
    return _stuck_too_long(plan, views, facts, now)


def _stuck_too_long(plan: Plan, views: list[_RoleView], facts: Facts, now: float) -> _Failure | None:
    if not plan.startup_timeout:
        return None
    names_now = {view.job["metadata"]["name"] for view in views if view.job is not None and not view.finished}
    for pod in facts.pods:
        if (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name") not in names_now:
            continue
        since = states.seconds(pod["metadata"].get("creationTimestamp"))
        if states.pod_state(pod) is AppState.PENDING and since is not None and now - since > plan.startup_timeout:
            why = states.stuck(pod) or "; ".join(facts.notes) or "no reason given"
            return _Failure(f"startup_timeout: pending for more than {plan.startup_timeout:g} seconds: {why}")
    for view in views:
        job = view.job or {}
        since = states.seconds((job.get("status") or {}).get("startTime"))
        without = not view.finished and all(replica.state is AppState.SUBMITTED for replica in view.replicas)
        if since is not None and without and now - since > plan.startup_timeout:
            why = "; ".join(facts.notes) or "no pod could be made"
            return _Failure(f"startup_timeout: role {view.plan.name}: {why}")
    return None


def _failure_text(view: _RoleView) -> str:
    found = states.condition(view.job or {}, "Failed") or {}
    if view.late:
        return f"timeout: role {view.plan.name}: {found.get('message') or 'took too long'}"
    bad = next((r for r in view.replicas if r.state is AppState.FAILED), None)
    if bad is None:
        return f"role {view.plan.name}: {found.get('reason', 'failed')}: {found.get('message', '')}".rstrip(": ")
    text = f"{view.plan.name}/{bad.id} {exit_text(bad.exit_code)}"
    return "; ".join([text, *view.reasons])


def _restart(plan: Plan, views: list[_RoleView]) -> list[tuple[str, Attempt]]:
    """Return the Jobs that answer the failures; none if a role has used up its retries."""
    wanted: dict[str, Attempt] = {}
    whole = max(view.attempt[0] for view in views)
    for view in (view for view in views if view.failed):
        role = view.plan
        if role.policy == "APPLICATION" and whole < role.retries:
            return [(each.name, (whole + 1, 0)) for each in plan.roles]
        if role.policy != "ROLE" or view.earlier >= role.retries:
            return []
        wanted[role.name] = (view.attempt[0], view.attempt[1] + 1)
    return list(wanted.items())


def _half_restarted(views: list[_RoleView]) -> list[tuple[str, Attempt]]:
    """Return the Jobs that are missing from an attempt of the app that somebody began to make."""
    whole = max(view.attempt[0] for view in views)
    return [(view.plan.name, (whole, 0)) for view in views if view.attempt[0] < whole]


def _restarted(status: AppStatus, restart: list[tuple[str, Attempt]], views: list[_RoleView]) -> Verdict:
    """Return the verdict on an app of which something is to be started again: only when nothing of it runs any more."""
    status.state = AppState.PENDING
    wanted = {name for name, _ in restart}
    left = [view.job for view in views if view.plan.name in wanted and view.job and not view.finished]
    if left:
        return Verdict(status, end=[job["metadata"]["name"] for job in left if _is_open(job)])
    return Verdict(status, restart=restart)


def _stopped(status: AppStatus, stop: Stop, facts: Facts) -> Verdict:
    """Return the verdict on an app that is being ended: final once no Job is left that may run something."""
    status.msg, status.cancel_requested = stop.msg, stop.kind == "cancel"
    left = [job for job in facts.jobs if not states.is_finished(job)]
    if left:
        if status.state is not AppState.RUNNING:
            status.state = AppState.PENDING
        return Verdict(status, end=_unfinished(facts))
    status.state = AppState.CANCELLED if stop.kind == "cancel" else AppState.FAILED
    for role in status.roles:
        for replica in role.replicas:
            if not is_terminal(replica.state):
                replica.state = AppState.CANCELLED
    return Verdict(status, note=True)


def _is_open(job: dict[str, Any]) -> bool:
    return not states.is_finished(job) and not job["metadata"].get("deletionTimestamp")


def _unfinished(facts: Facts) -> list[str]:
    return [job["metadata"]["name"] for job in facts.jobs if _is_open(job)]


def _restarts(views: list[_RoleView]) -> int:
    whole = max(view.attempt[0] for view in views)
    return (
        whole
        + sum(view.attempt[1] for view in views)
        + sum(
            sum(replica.restarts for replica in view.replicas) - sum(view.attempt) * len(view.replicas)
            for view in views
        )
    )


def _running_state(views: list[_RoleView]) -> AppState:
    seen = {replica.state for view in views for replica in view.replicas}
    if AppState.RUNNING in seen:
        return AppState.RUNNING
    if seen == {AppState.UNKNOWN}:
        return AppState.UNKNOWN
    started = seen & {AppState.SUCCEEDED, AppState.FAILED}
    if started and not seen & {AppState.PENDING, AppState.SUBMITTED}:
        return AppState.RUNNING  # all have ended, and the Job has yet to say so
    return AppState.PENDING if seen - {AppState.SUBMITTED} else AppState.SUBMITTED


def role_attempts(facts: Facts, role: str) -> dict[Attempt, dict[str, Any]]:
    """Return the Jobs of a role by attempt, the first one first."""
    wanted = names.role_label(role)
    found = {
        names.read_attempt(job["metadata"]["labels"].get(names.LABEL_ATTEMPT, "")): job
        for job in facts.jobs
        if (job["metadata"].get("labels") or {}).get(names.LABEL_ROLE) == wanted
    }
    return dict(sorted(found.items()))


def replica_pods(facts: Facts, role: str, k: int) -> list[dict[str, Any]]:
    """Return the pods that were or are a replica, oldest first, through all attempts."""
    wanted = names.role_label(role)

    def age(pod: dict[str, Any]) -> tuple[Attempt, str, int, str]:
        metadata = pod["metadata"]
        failures = str((metadata.get("annotations") or {}).get(names.INDEX_FAILURES, "0"))
        attempt = names.read_attempt(metadata["labels"].get(names.LABEL_ATTEMPT, ""))
        # times are whole seconds: of two pods made within one, the count of failures tells
        return attempt, metadata.get("creationTimestamp") or "", int(failures or 0), metadata["name"]

    mine = [
        pod
        for pod in facts.pods
        if (pod["metadata"].get("labels") or {}).get(names.LABEL_ROLE) == wanted and states.index_of(pod) == k
    ]
    return sorted(mine, key=age)


def _view(role: RolePlan, facts: Facts, stopping: bool) -> _RoleView:
    attempts = role_attempts(facts, role.name)
    view = _RoleView(role)
    if attempts:
        view.attempt, view.job = next(reversed(attempts.items()))
    view.earlier = sum(attempt[1] > 0 for attempt in attempts)
    status = (view.job or {}).get("status") or {}
    done, failed = states.indexes(status.get("completedIndexes")), states.indexes(status.get("failedIndexes"))
    for k in range(role.replicas):
        pods = [
            pod
            for pod in replica_pods(facts, role.name, k)
            if names.read_attempt(pod["metadata"]["labels"].get(names.LABEL_ATTEMPT, "")) == view.attempt
        ]
        view.replicas.append(_replica(view, k, pods, k in done, k in failed, stopping))
    if states.condition(view.job or {}, "Suspended") and not view.finished:
        view.reasons.append(f"the Job of role {role.name} is suspended: it waits for its queue")
    return view


def _replica(
    view: _RoleView, k: int, pods: list[dict[str, Any]], done: bool, failed: bool, stopping: bool
) -> ReplicaStatus:
    pod = pods[-1] if pods else None
    state = states.pod_state(pod) if pod is not None else AppState.SUBMITTED
    if done:
        state = AppState.SUCCEEDED
    elif failed or (view.finished and state is AppState.FAILED):
        state = AppState.FAILED
    elif view.finished or (view.job is None and stopping):
        state = AppState.CANCELLED
    elif state is AppState.FAILED:
        state = AppState.PENDING  # its Job will replace it, or give up on the replica
    elif state is AppState.SUBMITTED and states.condition(view.job or {}, "Suspended"):
        state = AppState.PENDING
    replica = ReplicaStatus(k, state, view.plan.name, "")
    replica.restarts = sum(view.attempt) + max(0, len(pods) - 1)
    if pod is None:
        return replica
    annotations = pod["metadata"].get("annotations") or {}
    counted = [int(annotations.get(key) or 0) for key in (names.INDEX_FAILURES, names.INDEX_IGNORED)]
    replica.restarts = sum(view.attempt) + max(sum(counted), len(pods) - 1)
    replica.hostname = (pod.get("spec") or {}).get("nodeName") or ""
    _times(replica, pod)
    if state is AppState.PENDING and states.stuck(pod):
        view.reasons.append(f"{view.plan.name}/{k}: {states.stuck(pod)}")
    if state is AppState.FAILED and states.why_failed(pod):
        view.reasons.append(f"{view.plan.name}/{k}: {states.why_failed(pod)}")
    return replica


def _times(replica: ReplicaStatus, pod: dict[str, Any]) -> None:
    end = states.terminated(pod)
    replica.start_time = states.seconds(end.get("startedAt") or (pod.get("status") or {}).get("startTime"))
    if is_terminal(replica.state) and end:
        replica.exit_code = states.exit_code(end.get("exitCode"))
        replica.end_time = states.seconds(end.get("finishedAt"))
