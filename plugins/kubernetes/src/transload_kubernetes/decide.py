"""What the facts of a cluster mean for an app, and what is to be done about it. Pure: same facts,
same verdict.

First role by role: which Jobs and pods count now, and what they say of each replica. Then all of
it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Final

from transload.retries import error_line, total_usage
from transload.specs import (
    NONE,
    AppState,
    AppStatus,
    ReplicaStatus,
    RoleStatus,
    Usage,
    exit_text,
    is_terminal,
)
from transload_kubernetes import hold, names, states
from transload_kubernetes.names import Attempt
from transload_kubernetes.plan import Facts, Plan, RolePlan, Stop
from transload_kubernetes.results import said_of

HALF_SUBMITTED_S: Final = 120.0
"""Seconds after which an app whose submitter never finished counts as failed; before, a submit of
its id goes on."""
_MADE_AGAIN_S: Final = 30.0  # after its JobSet a first Job is made; what is made later replaces one


@dataclass(slots=True)
class RoleView:
    """A role as it stands."""

    plan: RolePlan  # how it is run
    attempt: Attempt = (0, 0)  # the attempt that counts
    job: dict[str, Any] = field(
        default_factory=dict
    )  # its Job of that attempt; empty: there is none
    replicas: list[ReplicaStatus] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)  # why it waits or has failed
    causes: dict[int, str] = field(
        default_factory=dict
    )  # replica → why, where that is not its program's exit code
    left: dict[int, dict[str, Any]] = field(
        default_factory=dict
    )  # replica → its pod whose program alone has ended
    earlier: int = 0  # how often it was started again by itself
    finished: bool = False  # its Job has ended
    good: bool = False  # and enough of its replicas ended well
    failed: bool = False  # and not enough of them did
    late: bool = False  # and that since it took too long


def _of_role(things: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    wanted = names.role_label(role)
    return [
        each
        for each in things
        if (each["metadata"].get("labels") or {}).get(names.LABEL_ROLE) == wanted
    ]


def replica_pods(facts: Facts, role: str, k: int) -> list[dict[str, Any]]:
    """Return the pods that were or are a replica, oldest first, through all attempts."""

    def age(pod: dict[str, Any]) -> tuple[Attempt, str, int, str]:
        metadata = pod["metadata"]
        # times are whole seconds: of two pods made within one, the count of failures tells
        return (
            names.attempt_of(pod),
            metadata.get("creationTimestamp") or "",
            _counts(pod)[0],
            metadata["name"],
        )

    return sorted((pod for pod in _of_role(facts.pods, role) if states.index_of(pod) == k), key=age)


def view_role(role: RolePlan, facts: Facts, stopping: bool) -> RoleView:
    """Return a role as it stands, in an app that may be on its way to the end."""
    jobs = {names.attempt_of(job): job for job in _of_role(facts.jobs, role.name)}
    attempts = {*jobs, *facts.made(role.name)}
    view = RoleView(
        role, max(attempts, default=(0, 0)), earlier=sum(attempt[1] > 0 for attempt in attempts)
    )
    made_again = 0
    if (
        facts.jobset is not None
    ):  # it tells what counts; Jobs of an earlier attempt are being removed
        view.attempt = (int((facts.jobset.get("status") or {}).get("restarts") or 0), 0)
    view.job = jobs.get(view.attempt, {})
    view.finished, status = states.is_finished(view.job), view.job.get("status") or {}
    view.late = (states.condition(view.job, "Failed") or {}).get("reason") == "DeadlineExceeded"
    if facts.jobset is not None and view.job and view.attempt == (0, 0):
        # a Job that somebody deletes is made again by the controller, silently
        made, set_made = (
            states.seconds(it["metadata"].get("creationTimestamp"))
            for it in (view.job, facts.jobset)
        )
        made_again = int(bool(made and set_made and made - set_made > _MADE_AGAIN_S))
    done, failed = (
        states.indexes(status.get("completedIndexes")),
        states.indexes(status.get("failedIndexes")),
    )
    for k in range(role.replicas):
        every = replica_pods(facts, role.name, k)
        pods = [pod for pod in every if names.attempt_of(pod) == view.attempt]
        view.replicas.append(_replica(view, facts, k, pods, k in done, k in failed, stopping))
        if used := total_usage(said_of(pod)[1] for pod in every):
            view.replicas[k].usage = Usage(**used)
        view.replicas[k].restarts += made_again
        attempt = states.attempt_of_program(pods[-1]) if pods else None
        if attempt != view.replicas[k].restarts:
            view.replicas[k].attempt = attempt
    enough = sum(replica.state is AppState.SUCCEEDED for replica in view.replicas) >= role.needed
    view.good, view.failed = view.finished and enough, view.finished and not enough
    if _is_suspended(view, facts) and not view.finished:
        view.reasons.append(f"the Job of role {role.name} is suspended")
    return view


def _replica(
    view: RoleView,
    facts: Facts,
    k: int,
    pods: list[dict[str, Any]],
    done: bool,
    failed: bool,
    stopping: bool,
) -> ReplicaStatus:
    pod = pods[-1] if pods else None
    state = states.pod_state(pod) if pod is not None else AppState.SUBMITTED
    if pod is not None and states.still_running(pod):
        state = AppState.RUNNING  # whatever a kubelet makes of a pod that has ended in part
    job = view.job["metadata"]["name"] if view.job else ""
    own = facts.own_end(view.plan.name, k, job, pod) if stopping and job else None
    suspended = _is_suspended(view, facts)
    if done:
        state = AppState.SUCCEEDED
    elif stopping and own is None and (not view.job or view.job["spec"].get("suspend")):
        state = AppState.CANCELLED if pod is None or not facts.is_active(pod) else state
    elif own is AppState.SUCCEEDED:
        state = own
    elif failed or (state is AppState.FAILED and (view.finished or _is_final(view, pod))):
        state = AppState.FAILED
    elif view.finished:
        state = AppState.CANCELLED
    elif state is AppState.FAILED or (state is AppState.SUBMITTED and suspended):
        state = AppState.PENDING  # its Job will replace it, or let it start
    replica = ReplicaStatus(k, state, view.plan.name, "")
    replica.restarts = sum(view.attempt) + max(len(pods) - 1, sum(_counts(pod or {})), 0)
    if pod is not None:
        _tell(replica, view, facts, pod)
    elif state is AppState.SUCCEEDED:
        replica.exit_code = 0  # what else counts as done; its pod has been removed
    deleted = pod is None or pod["metadata"].get("deletionTimestamp")
    if state is AppState.FAILED and deleted and not states.condition(pod or {}, "DisruptionTarget"):
        view.causes[k] = f"{exit_text(replica.exit_code)}: its pod was deleted by somebody"
    return replica


def _is_suspended(view: RoleView, facts: Facts) -> bool:
    """Tell whether somebody has suspended the Job of a role; before its submit is complete it is
    submitted only.
    """
    return states.is_suspended(view.job) and not hold.is_held(facts.jobset or view.job)


def _is_final(view: RoleView, pod: dict[str, Any] | None) -> bool:
    """Tell whether the Job will give up a replica for this failure of it, which it counts a second
    later.
    """
    limit = view.job.get("spec", {}).get("backoffLimitPerIndex")
    disrupted = states.condition(
        pod or {}, "DisruptionTarget"
    )  # by the cluster: that is no failure
    return limit is not None and disrupted is None and bool(_counts(pod or {})[0] >= limit)


def _counts(pod: dict[str, Any]) -> list[int]:
    """Return how often a replica had failed, and been disrupted, before this pod was made."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return [int(annotations.get(key) or 0) for key in (names.INDEX_FAILURES, names.INDEX_IGNORED)]


def _tell(replica: ReplicaStatus, view: RoleView, facts: Facts, pod: dict[str, Any]) -> None:
    """Fill in what a pod tells of a replica, and why it waits or has failed."""
    replica.hostname = (pod.get("spec") or {}).get("nodeName") or ""
    end = states.program(pod, "terminated")
    replica.start_time = states.seconds((end or states.program(pod, "running")).get("startedAt"))
    other, other_end = states.other_failure(pod)
    end = other_end or end
    if is_terminal(replica.state) and end:
        replica.exit_code = states.exit_code(end.get("exitCode"))
        replica.end_time = states.seconds(end.get("finishedAt"))
    error = said_of(pod)[0]
    left = states.still_running(pod)
    failure = (
        f"container {other} {exit_text(states.exit_code(end.get('exitCode')))}" if other else ""
    )
    if failure and replica.state is AppState.FAILED:
        view.causes[replica.id] = failure
    if left and not is_terminal(replica.state):
        view.left[replica.id] = pod
        code = states.exit_code(end.get("exitCode"))
        why = f"main has ended ({code}), container {', '.join(left)} still runs"
    elif replica.state is AppState.PENDING:
        why = failure or states.stuck(pod)
    elif replica.state is AppState.FAILED:
        error = facts.causes.get(pod["metadata"]["name"]) or error
        replica.structured_error_msg = error or NONE
        why = "; ".join(filter(None, (error_line(error), states.why_failed(pod))))
    else:
        why = states.lost_node(pod) if replica.state is AppState.RUNNING else ""
    if why:
        view.reasons.append(f"{view.plan.name}/{replica.id}: {why}")


def running_state(views: list[RoleView]) -> AppState:
    """Return the state of an app that has not ended."""
    seen = {replica.state for view in views for replica in view.replicas}
    if AppState.RUNNING in seen:
        return AppState.RUNNING
    if seen == {AppState.UNKNOWN}:
        return AppState.UNKNOWN
    started = seen & {AppState.SUCCEEDED, AppState.FAILED}
    jobs = [(view.job.get("spec") or {}, view.plan.replicas) for view in views]
    # one that was admitted in part runs them in turns
    in_turns = any(
        not job.get("suspend") and job.get("parallelism", count) < count for job, count in jobs
    )
    if started and (in_turns or not seen & {AppState.PENDING, AppState.SUBMITTED}):
        return (
            AppState.RUNNING
        )  # all have ended, and the Job has yet to say so, or to start the next ones
    return AppState.PENDING if seen - {AppState.SUBMITTED} else AppState.SUBMITTED


@dataclass(slots=True)
class Decision:
    """What an app is doing, and what is left to do for the process that waits for it as its
    owner.
    """

    status: AppStatus
    stop: Stop | None = None  # note this in its record
    restart: list[tuple[str, Attempt]] = field(
        default_factory=list
    )  # Jobs to make: name of the role and attempt
    start: list[tuple[str, str]] = field(
        default_factory=list
    )  # let these run, which are held: kind and name
    release: list[str] = field(
        default_factory=list
    )  # pods whose program has ended: end what else runs in them
    end: list[tuple[str, str]] = field(default_factory=list)  # end the pods of these: kind and name
    note: bool = False  # note the status as final
    final: AppStatus | None = None  # which is this one, if it is not that of the verdict

    @property
    def due(self) -> bool:
        """Whether anything is to be done."""
        return bool(
            self.stop or self.restart or self.start or self.release or self.end or self.note
        )


def is_half_submitted(facts: Facts, now: float) -> bool:
    """Tell whether the submit of an app is under way, or its submitter died: there is no such app
    yet.
    """
    if facts.plan is None or facts.stop is not None or facts.ended is not None or facts.is_complete:
        return False
    return now - facts.plan.created <= HALF_SUBMITTED_S


def decide(facts: Facts, now: float) -> Decision:
    """Return the verdict on an app that has a record, at a time (seconds since the epoch)."""
    plan = facts.plan
    if plan is None:
        return Decision(AppStatus(AppState.UNKNOWN, msg=facts.unreadable))
    if facts.ended is not None:
        return _after_end(facts, plan, facts.ended)
    views = [view_role(role, facts, bool(facts.stop)) for role in plan.roles]
    decision = _judge(plan, views, facts, now)
    if decision.note:
        decision.status.close(_last_moment(facts, now))
    if facts.stop is None and not decision.status.is_terminal():
        # of what failed the cluster answers the end as it would have without the rest of its pod
        left = [pod for view in views for pod in view.left.values()]
        decision.release = _names(
            [pod for pod in left if states.program(pod, "terminated").get("exitCode")]
        )
        if facts.is_complete and decision.stop is None:
            decision.start = hold.held(facts)
    return decision


def _last_moment(facts: Facts, now: float) -> float:
    """Return when the cluster says that the app's Jobs ended; now, if none is left that could
    tell.
    """
    found = []
    for thing in (*facts.jobs, facts.jobset or {}):
        ended = states.condition(thing, "Complete", "Completed", "Failed")
        found.append(states.seconds((ended or {}).get("lastTransitionTime")))
    return max((time for time in found if time is not None), default=now)


def _after_end(facts: Facts, plan: Plan, ended: AppStatus) -> Decision:
    """Return the verdict on an app whose end was noted: what runs beside its programs is ended,
    then its Jobs are.
    """
    left = [pod for pod in facts.pods if states.still_running(pod)]
    if not plan.jobset:
        return Decision(ended, release=_names(left), end=[] if left else _open(facts))
    # its controller would start all of it again if a pod failed; one that has yet to say that it
    # ended is left alone
    return Decision(ended, end=_open(facts) if left else [])


def _names(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods if not states.is_released(pod)]


def _has_ended_well(view: RoleView) -> bool:
    """Tell whether nothing of a role runs but containers beside its programs, enough of which ended
    well.
    """
    if view.good:
        return True
    codes = {k: states.program(pod, "terminated").get("exitCode") for k, pod in view.left.items()}
    good = [
        each
        for each in view.replicas
        if each.state is AppState.SUCCEEDED or codes.get(each.id) == 0
    ]
    over = all(is_terminal(each.state) or each.id in codes for each in view.replicas)
    return over and len(good) >= view.plan.needed


def _judge(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> Decision:
    stop = facts.stop
    status = _status_of(views)
    whole = max(view.attempt[0] for view in views)
    own = sum(replica.restarts - sum(view.attempt) for view in views for replica in view.replicas)
    status.num_restarts = whole + sum(view.attempt[1] for view in views) + own
    if (bad := status.first_failure()) is not None:
        status.structured_error_msg = bad.structured_error_msg
    if stop is not None:
        decision = _stopped(status, stop, facts)
        ends = {replica.state for role in status.roles for replica in role.replicas}
        if decision.note and stop.kind == "cancel" and ends == {AppState.SUCCEEDED}:
            status.state, status.msg = (
                AppState.SUCCEEDED,
                "",
            )  # it had ended, which nobody had seen yet
        return decision
    # somebody began to start the app again, and made some of the Jobs
    missing = [(v.plan.name, (whole, 0)) for v in views if not plan.jobset and v.attempt[0] < whole]
    if not missing and all(view.good for view in views):
        status.state = AppState.SUCCEEDED
        return Decision(status, note=True)
    runs_on = any(view.left for view in views)
    if runs_on and not missing and all(map(_has_ended_well, views)):
        # noted first: the cluster takes the end of what is left in a pod for a failure
        final = _ended_well(copy.deepcopy(status))
        status.msg = "; ".join(dict.fromkeys(why for view in views for why in view.reasons))
        return Decision(status, note=True, final=final)
    status.msg = "; ".join(
        dict.fromkeys([*(why for view in views for why in view.reasons), *facts.notes])
    )
    if missing:
        status.state = AppState.PENDING
        return Decision(status, restart=missing)
    if facts.set_hidden:
        return Decision(_by_jobs(status, plan, views))
    failure = _set_failure(plan, views, facts, now) if plan.jobset else _failure(plan, views)
    if not facts.is_complete:
        why = "it was never wholly submitted: the submitting process ended, or gave up, in the middle of it"
        failure = (why, False) if now - plan.created > HALF_SUBMITTED_S else None
    if failure is None:
        if hold.held(facts):
            if now - plan.created > hold.LONG_S:
                status.msg = status.msg or hold.LEFT
        elif states.is_suspended(facts.jobset or {}):
            status.state, status.msg = AppState.PENDING, status.msg or "its JobSet is suspended"
        elif plan.jobset and status.num_restarts and status.state is AppState.SUBMITTED:
            status.state = AppState.PENDING  # between two attempts
        elif plan.jobset and not facts.jobs:
            status.msg = status.msg or "no Job of it was made yet: does the JobSet controller run?"
        return Decision(status)
    why, again = failure
    if restart := _restart(plan, views) if again else []:
        status.state = AppState.PENDING
        wanted = dict(restart)  # of these nothing may run any more
        left = [
            view.job
            for view in views
            if view.plan.name in wanted and view.job and not _is_over(view.job, facts)
        ]
        return (
            Decision(status, end=_open(facts, left)) if left else Decision(status, restart=restart)
        )
    if facts.notes and not any(
        replica.start_time for role in status.roles for replica in role.replicas
    ):
        why = "; ".join([why, *facts.notes])  # why it never ran
    decision = _stopped(status, Stop("failed", why), facts)
    decision.stop = Stop("failed", why)
    return decision


def _status_of(views: list[RoleView]) -> AppStatus:
    return AppStatus(
        running_state(views), roles=[RoleStatus(view.plan.name, view.replicas) for view in views]
    )


def _by_jobs(status: AppStatus, plan: Plan, views: list[RoleView]) -> AppStatus:
    """Return the status of an app whose JobSet cannot be seen, as far as its Jobs and pods say."""
    if all(view.good for view in views):
        status.state = AppState.SUCCEEDED
    elif any(view.failed for view in views):
        again = any(role.retries for role in plan.roles)
        status.state = AppState.UNKNOWN if again else AppState.FAILED
        status.msg = "; ".join([_failure_text(view) for view in views if view.failed])
        if again:
            status.msg += "; whether its JobSet starts it again cannot be seen: this user may not list JobSets"
    return status


def _ended_well(status: AppStatus) -> AppStatus:
    """Return the status of an app of which only containers beside its programs run."""
    status.state, status.msg = AppState.SUCCEEDED, ""
    for replica in (
        each for role in status.roles for each in role.replicas if not is_terminal(each.state)
    ):
        replica.state, replica.exit_code = AppState.SUCCEEDED, 0
    return status


_Failure = tuple[str, bool]  # why an app cannot go on as it is, and whether a retry may answer it


def _failure(plan: Plan, views: list[RoleView]) -> _Failure | None:
    """Return why an app that is Jobs cannot go on as it is, or None; time limits are the Jobs'
    own.
    """
    failed = [view for view in views if view.failed]
    if failed:
        first = _status_of(failed).first_failure()
        view = next((each for each in failed if first in each.replicas), failed[0])
        return _failure_text(view), not view.late
    lost = [
        view.plan.name for view in views if not view.job
    ]  # not made again: nobody knows why it was taken away
    return (_lost(f"the Job of role {lost[0]}", plan), False) if lost else None


def _lost(what: str, plan: Plan) -> str:
    """Return what is said of an app of which something is gone that nobody here deleted."""
    seconds = plan.cfg.get("ttl")
    if seconds is None:
        return f"lost: {what} was deleted by somebody"
    reason = f"by run option ttl={seconds} the cluster deletes it so many seconds after its end"
    return f"lost: {what} is gone: {reason}, and nobody waited for that end"


def _set_failure(plan: Plan, views: list[RoleView], facts: Facts, now: float) -> _Failure | None:
    """Return why an app that is a JobSet cannot go on; starting Jobs again is its controller's
    matter.
    """
    if facts.jobset is None:
        return _lost("its JobSet", plan), False
    failed = states.condition(facts.jobset, "Failed")
    if failed is not None:
        texts = [_failure_text(view) for view in views if view.failed]
        return "; ".join(
            texts
        ) or f"{failed.get('reason', 'failed')}: {failed.get('message', '')}", False
    began = states.resumed(facts.jobset)
    # the limit of each attempt is its Jobs' own, that of all of them nobody's on the cluster
    if (
        plan.timeout is None
        or began is None
        or not views[0].attempt[0]
        or now - began <= plan.timeout + 1
    ):
        return None
    return f"timeout: all attempts together took longer than {plan.timeout:g} seconds", False


def _failure_text(view: RoleView) -> str:
    found = states.condition(view.job, "Failed") or {}
    if view.late:
        return f"timeout: role {view.plan.name}: {found.get('message') or 'took too long'}"
    bad = _status_of([view]).first_failure()
    if bad is None:
        return f"role {view.plan.name}: {found.get('reason', 'failed')}: {found.get('message', '')}".rstrip(
            ": "
        )
    text = f"{view.plan.name}/{bad.id} {view.causes.get(bad.id) or exit_text(bad.exit_code)}"
    return "; ".join([text, *view.reasons])


def _restart(plan: Plan, views: list[RoleView]) -> list[tuple[str, Attempt]]:
    """Return the Jobs that answer the failures; none if a role has used up its retries, or a JobSet
    has.
    """
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


def _stopped(status: AppStatus, stop: Stop, facts: Facts) -> Decision:
    """Return the verdict on an app that is being ended: final once nothing is left that may run
    something.
    """
    status.msg, status.cancel_requested = stop.msg, stop.kind == "cancel"
    things = [facts.jobset] if facts.jobset is not None else facts.jobs
    if not all(_is_over(thing, facts) for thing in things):
        if status.state is not AppState.RUNNING:
            status.state = AppState.PENDING
        return Decision(status, end=_open(facts))
    status.state = AppState.CANCELLED if stop.kind == "cancel" else AppState.FAILED
    before = (
        AppStatus.from_json(stop.seen).roles if stop.seen else status.roles
    )  # all that told of it may be gone
    for role, seen in zip(status.roles, before, strict=True):
        pairs = zip(role.replicas, seen.replicas, strict=True)
        role.replicas = [
            old if is_terminal(old.state) and new.exit_code is None else new for new, old in pairs
        ]
        for replica in role.replicas:
            if not is_terminal(replica.state):
                replica.state = AppState.CANCELLED
    return Decision(
        status, note=True, end=_open(facts)
    )  # what only waits for its submit, or for its queue


def _is_over(thing: dict[str, Any], facts: Facts) -> bool:
    """Tell whether nothing of a Job, or of the app's JobSet, runs or will run."""
    if states.is_finished(thing):
        return True
    name = thing["metadata"]["name"]
    mine = [
        pod
        for pod in facts.pods
        if thing is facts.jobset or pod["metadata"]["labels"].get(names.JOB) == name
    ]
    if hold.is_held(thing) and facts.is_complete:
        return False  # a request that is under way may let it run
    return states.is_suspended(thing) and not any(map(facts.is_active, mine))


def _open(facts: Facts, jobs: list[dict[str, Any]] | None = None) -> list[tuple[str, str]]:
    """Return kind and name of what is to be ended: all of an app, or of some Jobs, that has not and
    might run again.
    """
    as_set = jobs is None and facts.jobset is not None
    return [
        ("JobSet" if as_set else "Job", thing["metadata"]["name"])
        for thing in ([facts.jobset or {}] if as_set else facts.jobs if jobs is None else jobs)
        if not states.is_finished(thing)
        and not thing["metadata"].get("deletionTimestamp")
        and (not thing["spec"].get("suspend") or hold.is_held(thing) or _is_queued(thing))
    ]


def _is_queued(thing: dict[str, Any]) -> bool:
    """Tell whether a queue decides when a Job or JobSet is suspended."""
    return names.QUEUE in (thing["metadata"].get("labels") or {})
