"""What the facts of a cluster mean for an app, and what is to be done about it. Pure: same facts, same verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from transload.specs import AppState, AppStatus, RoleStatus, exit_text, is_terminal
from transload_kubernetes import names, states
from transload_kubernetes.names import Attempt
from transload_kubernetes.plan import Facts, Plan, Stop
from transload_kubernetes.views import RoleView, count_restarts, running_state, view_role

HALF_SUBMITTED_S: Final = 120.0
"""Seconds after which an app whose submitter never finished counts as failed."""


@dataclass(slots=True)
class Verdict:
    """What an app is doing, and what is left to do for the process that waits for it as its owner."""

    status: AppStatus
    stop: Stop | None = None  # note this in its record
    restart: list[tuple[str, Attempt]] = field(default_factory=list)  # Jobs to make: name of the role and attempt
    end: list[tuple[str, str]] = field(default_factory=list)  # end the pods of these: kind and name
    note: bool = False  # note the status as final

    @property
    def due(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.stop or self.restart or self.end or self.note)


def judge(facts: Facts, now: float) -> Verdict:
    """Return the verdict on an app that has a record, at a time (seconds since the epoch)."""
    plan = facts.plan()
    assert plan is not None
    ended, stop = facts.ended(), facts.stop()
    if ended is not None:  # a JobSet may have yet to say that it has ended: it is left alone
        return Verdict(ended, end=[] if plan.jobset else _to_end(facts))
    views = [view_role(role, facts, bool(stop)) for role in plan.roles]
    status = _status_of(views)
    status.num_restarts = count_restarts(views)
    if (bad := status.first_failure()) is not None:
        status.structured_error_msg = bad.structured_error_msg
    if stop is not None:
        return _stopped(status, stop, facts)
    whole = max(view.attempt[0] for view in views)
    # somebody began to start the app again, and made some of the Jobs
    missing = [(v.plan.name, (whole, 0)) for v in views if not plan.jobset and v.attempt[0] < whole]
    if not missing and all(view.good for view in views):
        status.state = AppState.SUCCEEDED
        return Verdict(status, note=True)
    status.msg = "; ".join(dict.fromkeys([*(why for view in views for why in view.reasons), *facts.notes]))
    if missing:
        status.state = AppState.PENDING
        return Verdict(status, restart=missing)
    if not facts.submitted():
        failure = _never_submitted(plan, now)
    elif plan.jobset:
        failure = _set_failure(plan, views, facts, now)
    else:
        failure = _failure(views)
    if failure is None:
        return _as_set(status, facts) if plan.jobset else Verdict(status)
    restart = _restart(plan, views) if failure.retry else []
    if restart:
        return _restarted(status, restart, views, facts)
    why = failure.msg
    if facts.notes and not any(replica.start_time for role in status.roles for replica in role.replicas):
        why = "; ".join([why, *facts.notes])  # why it never ran
    verdict = _stopped(status, Stop("failed", why), facts)
    verdict.stop = Stop("failed", why)
    return verdict


def _status_of(views: list[RoleView]) -> AppStatus:
    return AppStatus(running_state(views), roles=[RoleStatus(view.plan.name, view.replicas) for view in views])


@dataclass(frozen=True, slots=True)
class _Failure:
    msg: str
    retry: bool = False


def _never_submitted(plan: Plan, now: float) -> _Failure | None:
    if now - plan.created <= HALF_SUBMITTED_S:
        return None
    return _Failure("it was never wholly submitted: the submitting process ended in the middle of it")


def _failure(views: list[RoleView]) -> _Failure | None:
    """Return why an app that is Jobs cannot go on as it is, or None; time limits are the Jobs' own."""
    failed = [view for view in views if view.failed]
    if failed:
        first = _status_of(failed).first_failure()
        view = next((each for each in failed if first in each.replicas), failed[0])
        return _Failure(_failure_text(view), retry=not view.late)
    for view in views:
        if view.job is None:  # not made again: nobody knows why it was taken away
            return _Failure(f"lost: the Job of role {view.plan.name} was deleted by somebody")
    return None


def _set_failure(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> _Failure | None:
    """Return why an app that is a JobSet cannot go on; starting Jobs again is its controller's matter."""
    if facts.jobset is None:
        return _Failure("lost: its JobSet was deleted by somebody")
    failed = states.condition(facts.jobset, "Failed")
    if failed is not None:
        texts = [_failure_text(view) for view in views if view.failed]
        return _Failure("; ".join(texts) or f"{failed.get('reason', 'failed')}: {failed.get('message', '')}")
    began = states.resumed(facts.jobset)
    # the limit of each attempt is its Jobs' own, that of all of them nobody's on the cluster
    if plan.timeout is None or began is None or not views[0].attempt[0] or now - began <= plan.timeout + 1:
        return None
    return _Failure(f"timeout: all attempts together took longer than {plan.timeout:g} seconds")


def _as_set(status: AppStatus, facts: Facts) -> Verdict:
    the_set = facts.jobset or {}
    if states.condition(the_set, "Suspended"):
        status.state, status.msg = AppState.PENDING, status.msg or "its JobSet is suspended"
    elif status.num_restarts and status.state is AppState.SUBMITTED:
        status.state = AppState.PENDING  # between two attempts
    elif not facts.jobs and not status.msg:
        status.msg = "no Job of it was made yet: does the JobSet controller run?"
    return Verdict(status)


def _failure_text(view: RoleView) -> str:
    found = states.condition(view.job or {}, "Failed") or {}
    if view.late:
        return f"timeout: role {view.plan.name}: {found.get('message') or 'took too long'}"
    bad = _status_of([view]).first_failure()
    if bad is None:
        return f"role {view.plan.name}: {found.get('reason', 'failed')}: {found.get('message', '')}".rstrip(": ")
    text = f"{view.plan.name}/{bad.id} {exit_text(bad.exit_code)}"
    return "; ".join([text, *view.reasons])


def _restart(plan: Plan, views: list[RoleView]) -> list[tuple[str, Attempt]]:
    """Return the Jobs that answer the failures; none if a role has used up its retries, or a JobSet has."""
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


def _restarted(status: AppStatus, restart: list[tuple[str, Attempt]], views: list[RoleView], facts: Facts) -> Verdict:
    """Return the verdict on an app that is to start again: first nothing of it may run any more."""
    status.state = AppState.PENDING
    wanted = {name for name, _ in restart}
    left = [view.job for view in views if view.plan.name in wanted and view.job and not _is_over(view.job, facts)]
    return Verdict(status, end=_open("Job", left)) if left else Verdict(status, restart=restart)


def _stopped(status: AppStatus, stop: Stop, facts: Facts) -> Verdict:
    """Return the verdict on an app that is being ended: final once nothing is left that may run something."""
    status.msg, status.cancel_requested = stop.msg, stop.kind == "cancel"
    things = [facts.jobset] if facts.jobset is not None else facts.jobs
    if not all(_is_over(thing, facts) for thing in things):
        if status.state is not AppState.RUNNING:
            status.state = AppState.PENDING
        return Verdict(status, end=_to_end(facts))
    status.state = AppState.CANCELLED if stop.kind == "cancel" else AppState.FAILED
    if stop.seen:
        _remember(status, AppStatus.from_json(stop.seen))
    for role in status.roles:
        for replica in role.replicas:
            if not is_terminal(replica.state):
                replica.state = AppState.CANCELLED
    return Verdict(status, note=True)


def _remember(status: AppStatus, seen: AppStatus) -> None:
    """Take over what replicas had come to before all that tells of them was deleted."""
    for role, before in zip(status.roles, seen.roles, strict=True):
        pairs = zip(role.replicas, before.replicas, strict=True)
        role.replicas = [old if is_terminal(old.state) and new.exit_code is None else new for new, old in pairs]


def _is_over(thing: dict[str, Any], facts: Facts) -> bool:
    """Tell whether nothing of a Job, or of the app's JobSet, runs or will run."""
    if states.is_finished(thing):
        return True
    name = thing["metadata"]["name"]
    mine = [pod for pod in facts.pods if thing is facts.jobset or pod["metadata"]["labels"].get(names.JOB) == name]
    return states.is_held(thing) and not any(map(states.is_active, mine))


def _to_end(facts: Facts) -> list[tuple[str, str]]:
    """Return what is to be ended so that nothing of an app runs any more."""
    if facts.jobset is not None:
        return _open("JobSet", [facts.jobset])
    return _open("Job", facts.jobs)


def _open(kind: str, things: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return those that have not ended, and are not being ended: a queue may let a suspended one run again."""
    return [
        (kind, thing["metadata"]["name"])
        for thing in things
        if not states.is_finished(thing)
        and not thing["metadata"].get("deletionTimestamp")
        and (not thing["spec"].get("suspend") or names.QUEUE in (thing["metadata"].get("labels") or {}))
    ]
