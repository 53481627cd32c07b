"""An app role by role: which of its Jobs and pods count now, and what they say of each replica. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transload.specs import AppState, ReplicaStatus, is_terminal
from transload_kubernetes import names, states
from transload_kubernetes.names import Attempt
from transload_kubernetes.plan import Facts, RolePlan


@dataclass(slots=True)
class RoleView:
    """A role as it stands.

    Args:
        plan: how it is run.
        attempt: the attempt that counts.
        job: its Job of that attempt, or None.
        replicas: what is known of each replica.
        reasons: why it waits or has failed.
        earlier: how often it was started again by itself.
        made: the last attempt whose Job is known to have been made.
    """

    plan: RolePlan
    attempt: Attempt = (0, 0)
    job: dict[str, Any] | None = None
    replicas: list[ReplicaStatus] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    earlier: int = 0
    made: Attempt = (0, 0)

    @property
    def gone(self) -> bool:
        """Whether the Job that was made last is not there any more."""
        return self.made > self.attempt

    @property
    def finished(self) -> bool:
        """Whether its Job has ended."""
        return self.job is not None and states.is_finished(self.job)

    @property
    def good(self) -> bool:
        """Whether enough of its replicas ended well."""
        return (
            self.finished
            and not self.gone
            and sum(r.state is AppState.SUCCEEDED for r in self.replicas) >= self.plan.needed
        )

    @property
    def failed(self) -> bool:
        """Whether its Job has ended, and not enough replicas did well."""
        return self.finished and not self.good and not self.gone

    @property
    def late(self) -> bool:
        """Whether its Job ended because it took too long."""
        found = states.condition(self.job or {}, "Failed")
        return found is not None and found.get("reason") == "DeadlineExceeded"


def role_attempts(facts: Facts, role: str) -> dict[Attempt, dict[str, Any]]:
    """Return the Jobs of a role by attempt, the first one first."""
    wanted = names.role_label(role)
    found = {
        names.attempt_of(job): job
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
        # times are whole seconds: of two pods made within one, the count of failures tells
        return names.attempt_of(pod), metadata.get("creationTimestamp") or "", int(failures or 0), metadata["name"]

    mine = [
        pod
        for pod in facts.pods
        if (pod["metadata"].get("labels") or {}).get(names.LABEL_ROLE) == wanted and states.index_of(pod) == k
    ]
    return sorted(mine, key=age)


def view_role(role: RolePlan, facts: Facts, stopping: bool) -> RoleView:
    """Return a role as it stands.

    Args:
        role: how it is run.
        facts: what the cluster tells.
        stopping: the app is being ended.
    """
    attempts = role_attempts(facts, role.name)
    view = RoleView(role, made=facts.made(role.name))
    if facts.jobset is not None:  # it tells what counts; Jobs of an earlier attempt are being removed
        view.attempt = (int((facts.jobset.get("status") or {}).get("restarts") or 0), 0)
        view.job = attempts.get(view.attempt)
    elif attempts:
        view.attempt, view.job = next(reversed(attempts.items()))
    view.earlier = sum(attempt[1] > 0 for attempt in attempts)
    status = (view.job or {}).get("status") or {}
    done, failed = states.indexes(status.get("completedIndexes")), states.indexes(status.get("failedIndexes"))
    for k in range(role.replicas):
        pods = [pod for pod in replica_pods(facts, role.name, k) if names.attempt_of(pod) == view.attempt]
        view.replicas.append(_replica(view, k, pods, k in done, k in failed, stopping))
    if states.condition(view.job or {}, "Suspended") and not view.finished:
        view.reasons.append(f"the Job of role {role.name} is suspended: it waits for its queue")
    return view


def _replica(
    view: RoleView, k: int, pods: list[dict[str, Any]], done: bool, failed: bool, stopping: bool
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


def count_restarts(views: list[RoleView]) -> int:
    """Return how often anything of an app was started again."""
    whole = max(view.attempt[0] for view in views)
    return (
        whole
        + sum(view.attempt[1] for view in views)
        + sum(
            sum(replica.restarts for replica in view.replicas) - sum(view.attempt) * len(view.replicas)
            for view in views
        )
    )


def running_state(views: list[RoleView]) -> AppState:
    """Return the state of an app that has not ended."""
    seen = {replica.state for view in views for replica in view.replicas}
    if AppState.RUNNING in seen:
        return AppState.RUNNING
    if seen == {AppState.UNKNOWN}:
        return AppState.UNKNOWN
    started = seen & {AppState.SUCCEEDED, AppState.FAILED}
    if started and not seen & {AppState.PENDING, AppState.SUBMITTED}:
        return AppState.RUNNING  # all have ended, and the Job has yet to say so
    return AppState.PENDING if seen - {AppState.SUBMITTED} else AppState.SUBMITTED
