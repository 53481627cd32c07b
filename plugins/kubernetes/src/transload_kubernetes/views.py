"""An app role by role: which of its Jobs and pods count now, and what they say of each replica. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from transload.attempts import error_line
from transload.specs import NONE, AppState, ReplicaStatus, is_terminal
from transload_kubernetes import names, states
from transload_kubernetes.names import Attempt
from transload_kubernetes.plan import Facts, RolePlan
from transload_kubernetes.results import error_of_end

_MADE_AGAIN_S: Final = 30.0
"""Seconds after its JobSet within which a first Job is made by the controller; what is made later replaces one."""


@dataclass(slots=True)
class RoleView:
    """A role as it stands."""

    plan: RolePlan  # how it is run
    attempt: Attempt = (0, 0)  # the attempt that counts
    job: dict[str, Any] | None = None  # its Job of that attempt
    replicas: list[ReplicaStatus] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)  # why it waits or has failed
    earlier: int = 0  # how often it was started again by itself
    set_made: float | None = None  # when its JobSet was made, seconds since the epoch

    @property
    def finished(self) -> bool:
        """Whether its Job has ended."""
        return self.job is not None and states.is_finished(self.job)

    @property
    def good(self) -> bool:
        """Whether enough of its replicas ended well."""
        return self.finished and sum(r.state is AppState.SUCCEEDED for r in self.replicas) >= self.plan.needed

    @property
    def failed(self) -> bool:
        """Whether its Job has ended, and not enough replicas did well."""
        return self.finished and not self.good

    @property
    def in_turns(self) -> bool:
        """Whether its Job was admitted in part: it runs some replicas, and the others after them."""
        spec = (self.job or {}).get("spec") or {}
        return not spec.get("suspend") and spec.get("parallelism", self.plan.replicas) < self.plan.replicas

    @property
    def late(self) -> bool:
        """Whether its Job ended because it took too long."""
        found = states.condition(self.job or {}, "Failed")
        return found is not None and found.get("reason") == "DeadlineExceeded"


def _of_role(things: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    wanted = names.role_label(role)
    return [each for each in things if (each["metadata"].get("labels") or {}).get(names.LABEL_ROLE) == wanted]


def replica_pods(facts: Facts, role: str, k: int) -> list[dict[str, Any]]:
    """Return the pods that were or are a replica, oldest first, through all attempts."""

    def age(pod: dict[str, Any]) -> tuple[Attempt, str, int, str]:
        metadata = pod["metadata"]
        failures = str((metadata.get("annotations") or {}).get(names.INDEX_FAILURES, "0"))
        # times are whole seconds: of two pods made within one, the count of failures tells
        return names.attempt_of(pod), metadata.get("creationTimestamp") or "", int(failures or 0), metadata["name"]

    return sorted((pod for pod in _of_role(facts.pods, role) if states.index_of(pod) == k), key=age)


def view_role(role: RolePlan, facts: Facts, stopping: bool) -> RoleView:
    """Return a role as it stands, in an app that may be on its way to the end."""
    jobs = {names.attempt_of(job): job for job in _of_role(facts.jobs, role.name)}
    attempts = {*jobs, *facts.made(role.name)}
    view = RoleView(role, earlier=sum(attempt[1] > 0 for attempt in attempts))
    if facts.jobset is not None:  # it tells what counts; Jobs of an earlier attempt are being removed
        view.attempt = (int((facts.jobset.get("status") or {}).get("restarts") or 0), 0)
        view.set_made = states.seconds(facts.jobset["metadata"].get("creationTimestamp"))
    elif attempts:
        view.attempt = max(attempts)
    view.job = jobs.get(view.attempt)
    status = (view.job or {}).get("status") or {}
    done, failed = states.indexes(status.get("completedIndexes")), states.indexes(status.get("failedIndexes"))
    for k in range(role.replicas):
        pods = [pod for pod in replica_pods(facts, role.name, k) if names.attempt_of(pod) == view.attempt]
        view.replicas.append(_replica(view, k, pods, k in done, k in failed, stopping))
    if states.condition(view.job or {}, "Suspended") and not view.finished:
        view.reasons.append(f"the Job of role {role.name} is suspended")
    return view


def _replica(
    view: RoleView, k: int, pods: list[dict[str, Any]], done: bool, failed: bool, stopping: bool
) -> ReplicaStatus:
    pod = pods[-1] if pods else None
    state = states.pod_state(pod) if pod is not None else AppState.SUBMITTED
    held = bool(states.condition(view.job or {}, "Suspended"))
    if done:
        state = AppState.SUCCEEDED
    elif stopping and not _stays(pod) and (view.job is None or view.job["spec"].get("suspend")):
        state = AppState.CANCELLED if pod is None or not states.is_active(pod) else state
    elif failed or (state is AppState.FAILED and (view.finished or _is_final(view, pod))):
        state = AppState.FAILED
    elif view.finished:
        state = AppState.CANCELLED
    elif state is AppState.FAILED or (state is AppState.SUBMITTED and held):
        state = AppState.PENDING  # its Job will replace it, or let it start
    replica = ReplicaStatus(k, state, view.plan.name, "")
    again = max(len(pods) - 1, sum(_counts(pod or {})), 0)
    replica.restarts = sum(view.attempt) + again + _made_again(view)
    if pod is not None:
        _tell(replica, view, pod)
    elif done:
        replica.exit_code = 0  # what else counts as done; its pod has been removed
    return replica


def _stays(pod: dict[str, Any] | None) -> bool:
    """Tell whether a pod has ended by itself: what is ended from outside is deleted."""
    return pod is not None and not pod["metadata"].get("deletionTimestamp") and not states.is_active(pod)


def _is_final(view: RoleView, pod: dict[str, Any] | None) -> bool:
    """Tell whether the Job will give up a replica for this failure of it, which it counts a second later."""
    limit = ((view.job or {}).get("spec") or {}).get("backoffLimitPerIndex")
    disrupted = states.condition(pod or {}, "DisruptionTarget")  # by the cluster: that is no failure
    return limit is not None and disrupted is None and bool(_counts(pod or {})[0] >= limit)


def _counts(pod: dict[str, Any]) -> list[int]:
    """Return how often a replica had failed, and been disrupted, before this pod was made."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return [int(annotations.get(key) or 0) for key in (names.INDEX_FAILURES, names.INDEX_IGNORED)]


def _made_again(view: RoleView) -> int:
    """Return 1 for a Job of a JobSet's first attempt that somebody deleted: the controller made it again, silently."""
    made = states.seconds(((view.job or {}).get("metadata") or {}).get("creationTimestamp"))
    return int(bool(view.set_made and made and view.attempt == (0, 0) and made - view.set_made > _MADE_AGAIN_S))


def _tell(replica: ReplicaStatus, view: RoleView, pod: dict[str, Any]) -> None:
    """Fill in what a pod tells of a replica, and why it waits or has failed."""
    replica.hostname = (pod.get("spec") or {}).get("nodeName") or ""
    end = states.program(pod, "terminated")
    replica.start_time = states.seconds((end or states.program(pod, "running")).get("startedAt"))
    if is_terminal(replica.state) and end:
        replica.exit_code = states.exit_code(end.get("exitCode"))
        replica.end_time = states.seconds(end.get("finishedAt"))
    if replica.state is AppState.PENDING:
        why = states.stuck(pod)
    elif replica.state is AppState.FAILED:
        error = error_of_end(end)
        replica.structured_error_msg = error or NONE
        why = "; ".join(filter(None, (error_line(error), states.why_failed(pod))))
    else:
        why = states.lost_node(pod) if replica.state is AppState.RUNNING else ""
    if why:
        view.reasons.append(f"{view.plan.name}/{replica.id}: {why}")


def count_restarts(views: list[RoleView]) -> int:
    """Return how often anything of an app was started again."""
    whole = max(view.attempt[0] for view in views)
    own = sum(replica.restarts - sum(view.attempt) for view in views for replica in view.replicas)
    return whole + sum(view.attempt[1] for view in views) + own


def running_state(views: list[RoleView]) -> AppState:
    """Return the state of an app that has not ended."""
    seen = {replica.state for view in views for replica in view.replicas}
    if AppState.RUNNING in seen:
        return AppState.RUNNING
    if seen == {AppState.UNKNOWN}:
        return AppState.UNKNOWN
    started = seen & {AppState.SUCCEEDED, AppState.FAILED}
    in_turns = any(view.in_turns for view in views)
    if started and (in_turns or not seen & {AppState.PENDING, AppState.SUBMITTED}):
        return AppState.RUNNING  # all have ended, and the Job has yet to say so, or to start the next ones
    return AppState.PENDING if seen - {AppState.SUBMITTED} else AppState.SUBMITTED
