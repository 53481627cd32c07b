"""Decide from a cluster's facts which status a job has, and what is left to do for it.

Pure: the same facts and the same time give the same decision. The module `roles` gives the status
of each role.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from transload.specs import (
    AppState,
    AppStatus,
    ReplicaStatus,
    RoleStatus,
    exit_text,
    is_terminal,
)
from transload_kubernetes import hold, names, states
from transload_kubernetes.names import Attempt
from transload_kubernetes.plan import Facts, Plan, Stop
from transload_kubernetes.roles import RoleView, running_state, suspended_text, view_role

HALF_SUBMITTED_S: Final = 120.0
"""Seconds after which a job whose submit was never completed counts as failed.

Before that, a new submit with its id completes it."""

_NEVER_SUBMITTED: Final = (
    "its submit never finished: the submitting process ended or gave up before that"
)
_SETS_HIDDEN: Final = (
    "; this user may not list JobSets, so it is unknown whether its JobSet starts it again"
)


@dataclass(slots=True)
class Decision:
    """The status of a job, and the steps left for the process that waits for it as its owner.

    Attributes:
        status: the status of the job.
        stop: note in its record that it is being ended, and why.
        restart: make these Jobs. Each is the name of a role and an attempt.
        after_interruption: that is because of an interruption, and spends no retry.
        start: resume these held objects.
        end: end the pods of these objects. Each is a kind and a name.
        note: note the status in its record as final.
        is_left: whether its submit gave up just before it would have started it.
    """

    status: AppStatus
    stop: Stop | None = None
    restart: list[tuple[str, Attempt]] = field(default_factory=list)
    after_interruption: bool = False
    start: list[dict[str, Any]] = field(default_factory=list)
    end: list[tuple[str, str]] = field(default_factory=list)
    note: bool = False
    is_left: bool = False

    @property
    def due(self) -> bool:
        """Whether anything is to be done."""
        steps = (self.stop, self.restart, self.start, self.end)
        return any(map(bool, steps)) or self.note


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a job has failed, whether a retry may help, and whether events can add to the reason."""

    why: str
    may_retry: bool = False
    is_explained: bool = False


def is_half_submitted(facts: Facts, now: float) -> bool:
    """Tell whether a job does not exist yet, because it is being submitted.

    For a while this is true of a job whose submitter has died, too.
    """
    if facts.plan is None or facts.stop is not None or facts.ended is not None:
        return False
    if facts.is_complete:
        return False
    return facts.age(now) <= HALF_SUBMITTED_S


def decide(facts: Facts, now: float) -> Decision:
    """Return the decision on a job that has a record, at a time of the cluster's clock."""
    plan = facts.plan
    if plan is None:
        return Decision(AppStatus(AppState.UNKNOWN, msg=facts.unreadable))
    if facts.ended is not None:
        return _decide_after_end(facts, plan, facts.ended)
    stopping = facts.stop is not None
    views = [view_role(role, facts, stopping=stopping) for role in plan.roles]
    decision = _decide_before_end(plan, views, facts, now)
    if decision.note:
        decision.status.close(_end_time(facts, now))
    may_start = facts.is_complete and not stopping and decision.stop is None
    if may_start and not decision.status.is_terminal():
        decision.start = hold.held(facts)
    return decision


# -- the end of a job was noted


def _decide_after_end(facts: Facts, plan: Plan, ended: AppStatus) -> Decision:
    """Return the decision on a job whose end was noted: what might still run is ended."""
    if plan.jobset:
        return Decision(ended)  # its controller has yet to say that it ended
    return Decision(ended, end=_unfinished_of_all(facts))


def _end_time(facts: Facts, now: float) -> float:
    """Return when the Jobs ended, according to the cluster, or ``now`` if no Job is left."""
    times: list[float] = []
    for thing in (*facts.jobs, facts.jobset or {}):
        ended = states.condition(thing, "Complete", "Completed", "Failed") or {}
        time = states.seconds(ended.get("lastTransitionTime"))
        if time is not None:
            times.append(time)
    return max(times, default=now)


# -- the end of a job was not noted yet


def _decide_before_end(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> Decision:
    status = _status_of(views)
    status.num_restarts = _restarts_of(views)
    bad = status.first_failure()
    if bad is not None:
        status.structured_error_msg = bad.structured_error_msg
    if facts.stop is not None:
        return _decide_stop_asked(status, facts.stop, facts)
    missing = _missing_jobs(plan, views)
    if not missing and all(view.succeeded for view in views):
        status.state = AppState.SUCCEEDED
        # Jobs of earlier attempts, which were suspended
        left = [] if plan.jobset else _unfinished_of_all(facts)
        return Decision(status, note=True, end=left)
    reasons = [why for view in views for why in view.reasons]
    status.msg = _joined([*reasons, *facts.notes])
    if missing:
        status.state = AppState.PENDING
        known = {view.plan.name: view.shared for view in views}
        most = max(known.values())
        interrupted = any(known[name] < most for name, _ in missing)
        return Decision(status, restart=missing, after_interruption=interrupted)
    if facts.set_hidden:
        return Decision(_status_by_jobs(status, plan, views))
    failure = _failure(plan, views, facts, now)
    if failure is None:
        is_left = not status.msg and facts.age(now) > hold.LONG_S and bool(hold.held(facts))
        if is_left:
            status.msg = "it was not started: its submit gave up just before"
        _explain_waiting(status, plan, facts, now)
        return Decision(status, is_left=is_left)
    restart = _restart(plan, views) if failure.may_retry else []
    if restart:
        decision = _decide_restart(status, views, restart, facts)
        decision.after_interruption = _is_interruption(views)
        return decision
    return _decide_failed(status, failure, facts)


def _status_of(views: list[RoleView]) -> AppStatus:
    roles = [RoleStatus(view.plan.name, view.replicas) for view in views]
    return AppStatus(running_state(views), roles=roles)


def _restarts_of(views: list[RoleView]) -> int:
    """Return the restarts of the job, of its roles and of its replicas together."""
    of_job = max(view.attempt[0] for view in views)
    of_roles = sum(view.attempt[1] for view in views)
    if not of_job:  # each role's interruptions are its own
        of_roles = sum(max(0, view.attempt[1] - view.shared) for view in views)
    of_replicas = 0
    for view in views:
        failed = max(0, sum(view.attempt) - view.shared)
        of_replicas += sum(replica.restarts - failed for replica in view.replicas)
    interrupted = 0
    if of_job:
        interrupted = max(view.shared for view in views)
    return max(0, of_job + of_roles - interrupted) + of_replicas


def _joined(reasons: list[str]) -> str:
    """Return reasons as one text, without repeats."""
    return "; ".join(dict.fromkeys(reasons))


def _missing_jobs(plan: Plan, views: list[RoleView]) -> list[tuple[str, Attempt]]:
    """Return the Jobs that a restart has not made, because its process may have died."""
    if plan.jobset:
        return []
    latest = max(view.attempt[0] for view in views)
    return [(view.plan.name, (latest, 0)) for view in views if view.attempt[0] < latest]


def _replicas_of(status: AppStatus) -> list[ReplicaStatus]:
    return [replica for role in status.roles for replica in role.replicas]


def _status_by_jobs(status: AppStatus, plan: Plan, views: list[RoleView]) -> AppStatus:
    """Return the status of a job whose JobSet is hidden, from its Jobs and pods alone."""
    failed = [view for view in views if view.failed]
    if all(view.succeeded for view in views):
        status.state = AppState.SUCCEEDED
    elif failed:
        status.msg = "; ".join(_failure_text(view) for view in failed)
        status.state = AppState.FAILED
        if any(role.retries for role in plan.roles):
            status.state = AppState.UNKNOWN
            status.msg += _SETS_HIDDEN
    return status


def _explain_waiting(status: AppStatus, plan: Plan, facts: Facts, now: float) -> None:
    """Add to the status why a job does not run although it has not failed."""
    if hold.held(facts):
        return
    if states.is_suspended(facts.jobset or {}):
        status.state = AppState.PENDING
        status.msg = status.msg or suspended_text("its JobSet", facts.jobset or {})
    elif plan.jobset and status.num_restarts and status.state is AppState.SUBMITTED:
        status.state = AppState.PENDING  # between two attempts
    elif plan.jobset and not facts.jobs and facts.age(now) > hold.LONG_S:
        status.msg = status.msg or "the JobSet controller has made no Job yet; check that it runs"


# -- failures and retries


def _failure(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> _Failure | None:
    """Return why a job has failed, or None if it has not."""
    if not facts.is_complete:
        if facts.age(now) > HALF_SUBMITTED_S:
            return _Failure(_NEVER_SUBMITTED)
        return None
    if plan.jobset:
        return _failure_of_set(plan, views, facts, now)
    return _failure_of_jobs(plan, views)


def _failure_of_jobs(plan: Plan, views: list[RoleView]) -> _Failure | None:
    """Return why a job without a JobSet has failed, or None. Jobs have their own timeouts."""
    failed = [view for view in views if view.failed]
    if failed:
        first = _status_of(failed).first_failure()
        view = next((each for each in failed if first in each.replicas), failed[0])
        is_explained = first is not None and first.id in view.causes
        return _Failure(_failure_text(view), not view.timed_out, is_explained)
    for view in views:
        if not view.job:
            # it is not made again, because the reason for its deletion is unknown
            return _Failure(_lost_text(f"the Job of role {view.plan.name}", plan))
    return None


def _failure_of_set(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> _Failure | None:
    """Return why a job with a JobSet has failed, or None. Its controller does the retries."""
    if facts.jobset is None:
        return _Failure(_lost_text("its JobSet", plan))
    failed = states.condition(facts.jobset, "Failed")
    if failed is not None:
        texts = [_failure_text(view) for view in views if view.failed]
        reason = f"{failed.get('reason', 'failed')}: {failed.get('message', '')}"
        return _Failure("; ".join(texts) or reason)
    # each attempt is limited by its Jobs. Nothing on the cluster limits all attempts together.
    began = states.resumed(facts.jobset)
    is_first = views[0].attempt[0] == 0
    if plan.timeout is None or began is None or is_first or now - began <= plan.timeout + 1:
        return None
    return _Failure(f"timeout: all attempts together took longer than {plan.timeout:g} seconds")


def _lost_text(what: str, plan: Plan) -> str:
    """Return the message for a missing part of a job that transload has not deleted."""
    seconds = plan.cfg.get("ttl")
    if seconds is None:
        return f"lost: another user or program deleted {what}"
    reason = f"run option ttl={seconds} lets the cluster delete it {seconds} seconds after its end"
    return f"lost: {what} is gone, and no process waited for its end; {reason}"


def _failure_text(view: RoleView) -> str:
    """Return why a role has failed."""
    found = states.condition(view.job, "Failed") or {}
    name = view.plan.name
    if view.timed_out:
        return f"timeout: role {name}: {found.get('message') or 'took too long'}"
    bad = _status_of([view]).first_failure()
    if bad is None:
        text = f"role {name}: {found.get('reason', 'failed')}: {found.get('message', '')}"
        return text.rstrip(": ")
    cause = view.causes.get(bad.id) or exit_text(bad.exit_code)
    return "; ".join([f"{name}/{bad.id} {cause}", *view.reasons])


def _is_interruption(views: list[RoleView]) -> bool:
    """Tell whether all Jobs that have failed were interrupted."""
    return all(view.is_interrupted for view in views if view.failed)


def _restart(plan: Plan, views: list[RoleView]) -> list[tuple[str, Attempt]]:
    """Return the Jobs to make after failures, or none if a failed role has no retries left."""
    wanted: dict[str, Attempt] = {}
    latest = max(view.attempt[0] for view in views)
    for view in views:
        if not view.failed:
            continue
        role = view.plan
        spent = latest - view.shared
        if role.policy == "ROLE":
            spent = view.role_restarts - view.shared
        is_allowed = view.is_interrupted or spent < role.retries
        if role.policy == "APPLICATION" and is_allowed:
            return [(each.name, (latest + 1, 0)) for each in plan.roles]
        if not is_allowed or (role.policy != "ROLE" and not view.is_interrupted):
            return []
        wanted[role.name] = (view.attempt[0], view.attempt[1] + 1)
    return list(wanted.items())


def _decide_restart(
    status: AppStatus, views: list[RoleView], restart: list[tuple[str, Attempt]], facts: Facts
) -> Decision:
    """Return the decision to start roles again, once nothing of their last attempt runs."""
    status.state = AppState.PENDING
    roles = {name for name, _ in restart}
    for role_status in status.roles:
        if role_status.role in roles:
            _await_restart(role_status)
    running = []
    for view in views:
        if view.plan.name in roles and view.job and not _is_over(view.job, facts):
            running.append(view.job)
    if running:
        return Decision(status, end=_unfinished("Job", running))
    return Decision(status, restart=restart)


def _await_restart(role: RoleStatus) -> None:
    """Make the replicas of a role PENDING that have ended, since they are started again."""
    for replica in role.replicas:
        if is_terminal(replica.state):
            replica.state = AppState.PENDING


def _decide_failed(status: AppStatus, failure: _Failure, facts: Facts) -> Decision:
    """Return the decision to end a job that has failed."""
    why = failure.why
    has_run = any(replica.start_time for replica in _replicas_of(status))
    if facts.notes and not has_run and not failure.is_explained:
        why = "; ".join([why, *facts.notes])
    stop = Stop("failed", why)
    decision = _decide_stop(status, stop, facts)
    decision.stop = stop
    return decision


# -- ending a job


def _decide_stop_asked(status: AppStatus, stop: Stop, facts: Facts) -> Decision:
    """Return the decision on a job whose record says that it is to end."""
    decision = _decide_stop(status, stop, facts)
    ends = {replica.state for replica in _replicas_of(status)}
    if decision.note and stop.kind == "cancel" and ends == {AppState.SUCCEEDED}:
        # it had succeeded before it was cancelled
        status.state = AppState.SUCCEEDED
        status.msg = ""
    return decision


def _decide_stop(status: AppStatus, stop: Stop, facts: Facts) -> Decision:
    """Return the decision on a job that is being ended. It is final once nothing can run."""
    status.msg = stop.msg
    status.cancel_requested = stop.kind == "cancel"
    things = facts.jobs
    if facts.jobset is not None:
        things = [facts.jobset]
    if not all(_is_over(thing, facts) for thing in things):
        if status.state is not AppState.RUNNING:
            status.state = AppState.PENDING
        return Decision(status, end=_unfinished_of_all(facts))
    status.state = AppState.FAILED
    if status.cancel_requested:
        status.state = AppState.CANCELLED
    if stop.seen:
        _restore_ends(status, AppStatus.from_json(stop.seen))
    for replica in _replicas_of(status):
        if not is_terminal(replica.state):
            replica.state = AppState.CANCELLED
    # Jobs that only wait for their submit or their queue are ended too
    return Decision(status, note=True, end=_unfinished_of_all(facts))


def _restore_ends(status: AppStatus, before: AppStatus) -> None:
    """Restore the status of replicas that had ended before their pods were deleted."""
    for role, seen in zip(status.roles, before.roles, strict=True):
        for index, old in enumerate(seen.replicas):
            if is_terminal(old.state) and role.replicas[index].exit_code is None:
                role.replicas[index] = old


def _is_over(thing: dict[str, Any], facts: Facts) -> bool:
    """Tell whether no pod of a Job or JobSet runs or will run."""
    if states.is_finished(thing):
        return True
    if hold.is_held(thing) and facts.is_complete:
        return False  # a pending request may still resume it
    pods = facts.pods
    if thing is not facts.jobset:
        name = thing["metadata"]["name"]
        pods = [pod for pod in pods if pod["metadata"]["labels"].get(names.JOB) == name]
    return states.is_suspended(thing) and not any(map(states.is_active, pods))


def _unfinished_of_all(facts: Facts) -> list[tuple[str, str]]:
    """Return the kind and the name of each object of a job that might still run.

    Those count, too, that the cluster deletes after their end, which suspended ones never reach.
    """
    if facts.jobset is not None:
        return _unfinished("JobSet", [facts.jobset])
    found = _unfinished("Job", facts.jobs)
    for job in facts.jobs:
        item = ("Job", job["metadata"]["name"])
        is_left = hold.goes_by_itself(job) and not states.is_finished(job)
        if is_left and not hold.is_finishing(job) and item not in found:
            found.append(item)
    return found


def _unfinished(kind: str, things: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the kind and the name of those objects that might still run."""
    found = []
    for thing in things:
        if states.is_finished(thing) or thing["metadata"].get("deletionTimestamp"):
            continue
        if hold.is_finishing(thing):
            continue
        may_run = not thing["spec"].get("suspend") or hold.is_held(thing) or _is_queued(thing)
        if may_run:
            found.append((kind, thing["metadata"]["name"]))
    return found


def _is_queued(thing: dict[str, Any]) -> bool:
    """Tell whether a queue decides when a Job or JobSet is suspended."""
    return names.QUEUE in names.labels_of(thing)
