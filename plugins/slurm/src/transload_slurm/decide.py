"""What an app is doing: the wrapper's word in the app's folder, checked against Slurm's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transload.retries import Gang
from transload.specs import AppState, AppStatus, ReplicaStatus, RoleStatus, is_terminal
from transload_slurm import elements
from transload_slurm.jobs import Job
from transload_slurm.states import WHY, clean, to_state

NEVER: Final = "DependencyNeverSatisfied"
_DEPENDENCY: Final = (NEVER, "Dependency")
FORGOTTEN: Final = "Slurm knows nothing of its job any more, and the job left no word of its end"


def written_end(state: Mapping[str, Any] | None) -> bool:
    """Tell whether the wrapper has written the app's end: then nobody else need be asked."""
    return state is not None and is_terminal(to_state_of(state))


def to_state_of(state: Mapping[str, Any]) -> AppState:
    """Return the state in a ``state.json``."""
    return AppState.__members__.get(str(state.get("state")), AppState.UNKNOWN)


def decide(
    record: Mapping[str, Any],
    state: Mapping[str, Any] | None,
    job: Job | None,
    *,
    cancel_requested: bool = False,
    note: str = "",
) -> AppStatus:
    """Return the status of an app.

    The wrapper's end is decisive: it saw every replica end. Without it Slurm's word counts, save
    for success, which is only what replicas have recorded. Where Slurm has forgotten the job, the
    state is UNKNOWN, unless the wrapper wrote that Slurm was ending it.

    Args:
        record: what was submitted.
        state: what the wrapper has written.
        job: what Slurm says; None if it does not know the job.
        cancel_requested: somebody asked for the end through us.
        note: the last line that the job's own log holds.
    """
    status = AppStatus.from_dict(state) if state is not None else AppStatus(AppState.SUBMITTED)
    status.roles = status.roles or _pending(record)
    status.cancel_requested = cancel_requested
    if is_terminal(status.state):
        return status
    if job is None:
        return _forgotten(status, state, cancel_requested)
    word = clean(job.state)
    status.state = to_state(job.state)
    if not record["gang"] and is_terminal(status.state) and job.reason not in _DEPENDENCY:
        return _array(status, record, state, job)
    if word == "COMPLETED":
        _check_completed(status, record, job)
    elif status.state is AppState.CANCELLED:
        _cancelled(status, job)
    elif status.state is AppState.FAILED:
        reason = WHY.get(word) or note or "see batch.log"
        status.msg = f"Slurm job {job.id}: {word}: {reason}" + (
            f" ({job.reason})" if job.reason else ""
        )
    elif status.state is AppState.PENDING:
        again = f"{status.msg}; " if status.msg and state is not None else ""
        doing = "suspended by Slurm" if word == "SUSPENDED" else "waiting in Slurm's queue"
        status.msg = f"{again}{doing} as job {job.id}" + (f": {job.reason}" if job.reason else "")
        if job.reason == NEVER:
            status.state, status.msg = (
                AppState.FAILED,
                f"Slurm job {job.id}: its dependency can never be satisfied",
            )
    elif status.state is AppState.UNKNOWN:
        status.msg = f"Slurm job {job.id} is {job.state!r}, which means nothing to this version"
    if is_terminal(status.state):
        _settle(status)
    elif status.state is AppState.PENDING:
        _wait(status)
    return status


def _array(
    status: AppStatus, record: Mapping[str, Any], state: Mapping[str, Any] | None, job: Job
) -> AppStatus:
    if not elements.settle(status, record["roles"][0], state, job):
        status.state, status.msg = AppState.UNKNOWN, FORGOTTEN
    elif status.cancel_requested and status.state is AppState.FAILED:
        status.state = AppState.CANCELLED
    if status.cancel_requested and status.state is AppState.CANCELLED:
        status.msg = Gang.ON_REQUEST
    return status


def is_unreported(record: Mapping[str, Any], state: Mapping[str, Any] | None, job: Job) -> bool:
    """Tell whether Slurm says COMPLETED, but the wrapper has written no end; on a shared disk it
    may come late.
    """
    if not record["gang"]:
        return elements.is_unreported(state, job)
    return clean(job.state) == "COMPLETED" and not written_end(state)


def _check_completed(status: AppStatus, record: Mapping[str, Any], job: Job) -> None:
    """COMPLETED is the batch script's exit code 0, no more: the replicas whose success is recorded
    decide.
    """
    for role, asked in zip(status.roles, record["roles"], strict=False):
        wanted = asked["num_replicas"] if asked["min_replicas"] is None else asked["min_replicas"]
        states = [replica.state for replica in role.replicas]
        if states.count(AppState.SUCCEEDED) >= wanted:
            continue
        status.state = AppState.FAILED
        failed = states.count(AppState.FAILED)
        if failed:
            why = f"COMPLETED, but {failed} replica(s) of role {role.role!r} failed"
        elif all(state is AppState.PENDING for state in states):
            why = elements.ENDED_EARLY
        else:
            why = elements.NO_REPORT
        status.msg = f"Slurm job {job.id}: {why}"
        return


def _cancelled(status: AppStatus, job: Job) -> None:
    if job.reason in _DEPENDENCY:
        status.state, status.msg = (
            AppState.FAILED,
            f"Slurm job {job.id}: its dependency can never be satisfied",
        )
    elif not status.cancel_requested:
        who = job.state.partition(" by ")[2]  # the record of a job knows
        status.msg = f"Slurm job {job.id} was cancelled" + (f" by user {who}" if who else "")
    else:
        status.msg = Gang.ON_REQUEST


def _forgotten(
    status: AppStatus, state: Mapping[str, Any] | None, cancel_requested: bool
) -> AppStatus:
    if state is not None and state.get("signalled"):
        status.state = AppState.CANCELLED if cancel_requested else AppState.FAILED
        why = "Slurm ended its job (scancel, limit of time or pre-emption), and forgot why"
        status.msg = Gang.ON_REQUEST if cancel_requested else why
        _settle(status)
        return status
    status.state = AppState.UNKNOWN
    status.msg = FORGOTTEN
    return status


def _settle(status: AppStatus) -> None:
    """The app has ended without the wrapper seeing all of it: nothing of it runs."""
    for role in status.roles:
        for replica in role.replicas:
            if not is_terminal(replica.state):
                ended = status.state is AppState.CANCELLED or replica.state is not AppState.RUNNING
                replica.state = AppState.CANCELLED if ended else status.state


def _wait(status: AppStatus) -> None:
    """The job is in the queue (again): no replica runs."""
    for role in status.roles:
        for replica in role.replicas:
            if replica.state is AppState.RUNNING:
                replica.state = AppState.PENDING


def _pending(record: Mapping[str, Any]) -> list[RoleStatus]:
    return [
        RoleStatus(
            role["name"],
            [
                ReplicaStatus(k, AppState.PENDING, role["name"], "")
                for k in range(role["num_replicas"])
            ],
        )
        for role in record["roles"]
    ]
