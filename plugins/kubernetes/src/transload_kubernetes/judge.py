"""What the facts of a cluster mean for an app, and what is to be done about it. Pure: same facts, same verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from transload.specs import AppState, AppStatus, RoleStatus, exit_text, is_terminal
from transload_kubernetes import states
from transload_kubernetes.names import Attempt
from transload_kubernetes.plan import Facts, Plan, Stop
from transload_kubernetes.views import RoleView, count_restarts, running_state, view_role

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
        end_set: delete the JobSet, with its Jobs and pods.
        note: note the status as final.
    """

    status: AppStatus
    stop: Stop | None = None
    restart: list[tuple[str, Attempt]] = field(default_factory=list)
    end: list[str] = field(default_factory=list)
    end_set: bool = False
    note: bool = False

    def to_do(self) -> bool:
        """Tell whether anything is to be done."""
        return bool(self.stop or self.restart or self.end or self.end_set or self.note)


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
    if ended is not None:  # a JobSet may have yet to say that it has ended: it is left alone
        return Verdict(ended, end=[] if plan.jobset else _unfinished(facts))
    views = [view_role(role, facts, bool(stop)) for role in plan.roles]
    status = AppStatus(running_state(views), roles=[RoleStatus(v.plan.name, v.replicas) for v in views])
    status.num_restarts = count_restarts(views)
    if stop is not None:
        return _stopped(status, stop, facts)
    missing = [] if plan.jobset else _half_restarted(views)
    if not missing and all(view.good for view in views):
        status.state = AppState.SUCCEEDED
        return Verdict(status, note=True)
    status.msg = "; ".join(dict.fromkeys(reason for view in views for reason in view.reasons)) or "; ".join(facts.notes)
    if missing:
        status.state = AppState.PENDING
        return Verdict(status, restart=missing)
    if not facts.submitted():
        failure = _never_submitted(plan, now)
    elif plan.jobset:
        return _judged_set(status, _set_failure(plan, views, facts, now), facts)
    else:
        failure = _failure(plan, views, facts, now)
    if failure is None:
        return Verdict(status)
    restart = _restart(plan, views) if failure.retry else []
    return _restarted(status, restart, views) if restart else _failed(status, failure, facts)


def _failed(status: AppStatus, failure: _Failure, facts: Facts) -> Verdict:
    verdict = _stopped(status, Stop("failed", failure.msg), facts)
    verdict.stop = Stop("failed", failure.msg)
    return verdict


@dataclass(frozen=True, slots=True)
class _Failure:
    msg: str
    retry: bool = False


def _never_submitted(plan: Plan, now: float) -> _Failure | None:
    if now - plan.created <= HALF_SUBMITTED_S:
        return None
    return _Failure("it was never wholly submitted: the submitting process ended in the middle of it")


def _failure(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> _Failure | None:
    """Return why the app cannot go on as it is, or None."""
    for view in views:
        if view.failed:
            return _Failure(_failure_text(view), retry=not view.late)
    for view in views:
        if view.job is None or view.gone:  # not made again: nobody knows why it was taken away
            return _Failure(f"lost: the Job of role {view.plan.name} was deleted by somebody")
    starts = [states.seconds((job.get("status") or {}).get("startTime")) for job in facts.jobs]
    first = min((start for start in starts if start is not None), default=None)
    return _took_too_long(plan, first, now) or _stuck_too_long(plan, views, facts, now)


def _took_too_long(plan: Plan, began: float | None, now: float) -> _Failure | None:
    if plan.timeout is not None and began is not None and now - began > plan.timeout + 1:
        return _Failure(f"timeout: took longer than {plan.timeout:g} seconds")
    return None


def _set_failure(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> _Failure | None:
    """Return why an app that is a JobSet cannot go on; starting Jobs again is its controller's matter."""
    if facts.jobset is None:
        return _Failure("lost: its JobSet was deleted by somebody")
    failed = states.condition(facts.jobset, "Failed")
    if failed is not None:
        texts = [_failure_text(view) for view in views if view.failed]
        return _Failure("; ".join(texts) or f"{failed.get('reason', 'failed')}: {failed.get('message', '')}")
    if states.condition(facts.jobset, "Suspended"):
        return None
    began = states.resumed(facts.jobset)
    failure = _took_too_long(plan, began, now) or _stuck_too_long(plan, views, facts, now)
    if failure is None and plan.startup_timeout and not facts.jobs and began and now - began > plan.startup_timeout:
        why = "; ".join(facts.notes) or "nobody made its Jobs: does the JobSet controller run?"
        return _Failure(f"startup_timeout: {why}")
    return failure


def _judged_set(status: AppStatus, failure: _Failure | None, facts: Facts) -> Verdict:
    if failure is not None:
        return _failed(status, failure, facts)
    the_set = facts.jobset or {}
    if states.condition(the_set, "Suspended"):
        status.state, status.msg = AppState.PENDING, status.msg or "its JobSet is suspended: it waits for its queue"
    elif status.num_restarts and status.state is AppState.SUBMITTED:
        status.state = AppState.PENDING  # between two attempts
    return Verdict(status)


def _stuck_too_long(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> _Failure | None:
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


def _failure_text(view: RoleView) -> str:
    found = states.condition(view.job or {}, "Failed") or {}
    if view.late:
        return f"timeout: role {view.plan.name}: {found.get('message') or 'took too long'}"
    bad = next((r for r in view.replicas if r.state is AppState.FAILED), None)
    if bad is None:
        return f"role {view.plan.name}: {found.get('reason', 'failed')}: {found.get('message', '')}".rstrip(": ")
    text = f"{view.plan.name}/{bad.id} {exit_text(bad.exit_code)}"
    return "; ".join([text, *view.reasons])


def _restart(plan: Plan, views: list[RoleView]) -> list[tuple[str, Attempt]]:
    """Return the Jobs that answer the failures; none if a role has used up its retries."""
    wanted: dict[str, Attempt] = {}
    whole = _whole(views)
    for view in (view for view in views if view.failed):
        role = view.plan
        if role.policy == "APPLICATION" and whole < role.retries:
            return [(each.name, (whole + 1, 0)) for each in plan.roles]
        if role.policy != "ROLE" or view.earlier >= role.retries:
            return []
        wanted[role.name] = (view.attempt[0], view.attempt[1] + 1)
    return list(wanted.items())


def _half_restarted(views: list[RoleView]) -> list[tuple[str, Attempt]]:
    """Return the Jobs that are missing from an attempt of the app that somebody began to make."""
    whole = _whole(views)
    return [(view.plan.name, (whole, 0)) for view in views if max(view.attempt, view.made)[0] < whole]


def _whole(views: list[RoleView]) -> int:
    """Return how often the whole app was started again."""
    return max(max(view.attempt, view.made)[0] for view in views)


def _restarted(status: AppStatus, restart: list[tuple[str, Attempt]], views: list[RoleView]) -> Verdict:
    """Return the verdict on an app of which something is to be started again: only when nothing of it runs any more."""
    status.state = AppState.PENDING
    wanted = {name for name, _ in restart}
    left = [view.job for view in views if view.plan.name in wanted and view.job and not view.finished]
    if left:
        return Verdict(status, end=[job["metadata"]["name"] for job in left if _is_open(job)])
    return Verdict(status, restart=restart)


def _stopped(status: AppStatus, stop: Stop, facts: Facts) -> Verdict:
    """Return the verdict on an app that is being ended: final once nothing is left that may run something."""
    status.msg, status.cancel_requested = stop.msg, stop.kind == "cancel"
    if facts.jobset is not None and not states.is_finished(facts.jobset):
        left = True
    else:
        left = any(not states.is_finished(job) for job in facts.jobs)
    if left:
        if status.state is not AppState.RUNNING:
            status.state = AppState.PENDING
        return _ending(Verdict(status), facts)
    status.state = AppState.CANCELLED if stop.kind == "cancel" else AppState.FAILED
    for role in status.roles:
        for replica in role.replicas:
            if not is_terminal(replica.state):
                replica.state = AppState.CANCELLED
    return Verdict(status, note=True)


def _ending(verdict: Verdict, facts: Facts) -> Verdict:
    """Add what is to be deleted so that nothing runs any more; of a JobSet that has ended the controller sees to it."""
    if facts.jobset is None:
        verdict.end = _unfinished(facts)
    else:
        verdict.end_set = _is_open(facts.jobset)
    return verdict


def _is_open(job: dict[str, Any]) -> bool:
    return not states.is_finished(job) and not job["metadata"].get("deletionTimestamp")


def _unfinished(facts: Facts) -> list[str]:
    return [job["metadata"]["name"] for job in facts.jobs if _is_open(job)]
