"""The state of a job, from the keeper's files in its folder and Slurm's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transload.keeper.rules import needed_replicas
from transload.specs import AppState, AppStatus, ReplicaStatus, RoleStatus, is_terminal
from transload_slurm.jobs import Job
from transload_slurm.states import WHY, clean, ended, to_state
from transload_slurm.store import roles_of
from transload_slurm.waiting import in_words

NEVER: Final = "DependencyNeverSatisfied"
_DEPENDENCY: Final = (NEVER, "Dependency")
FORGOTTEN: Final = "Slurm knows nothing of its job any more, and the job left no word of its end"
_NEVER_SATISFIED: Final = "its dependency can never be satisfied"
_ENDED_EARLY: Final = (
    "COMPLETED, but its batch script ended before the program started: does the prologue call exit?"
)
"""Why a job has failed of which Slurm says COMPLETED, if no replica was started."""

_NO_REPORT: Final = "COMPLETED, but there is no record that the program ended well: see batch.log"
"""Likewise, if replicas were started."""

_ENDED_BY_SLURM: Final = (
    "Slurm ended its job (scancel, limit of time or pre-emption), and forgot why"
)


def written_end(state: Mapping[str, Any] | None) -> bool:
    """Tell whether the keeper has written the job's end, so that Slurm need not be asked."""
    return state is not None and is_terminal(to_state_of(state))


def to_state_of(state: Mapping[str, Any]) -> AppState:
    """Return the state in a file of states."""
    return AppState.__members__.get(str(state.get("state")), AppState.UNKNOWN)


def decide(
    record: Mapping[str, Any],
    state: Mapping[str, Any] | None,
    job: Job | None,
    *,
    request: str = "",
    note: str = "",
) -> AppStatus:
    """Return the status of a job.

    The end that the keeper wrote is decisive, for it saw every replica end. Without it Slurm's
    word counts, but not for success: only replicas record that. If Slurm has forgotten the job, the
    state is UNKNOWN, unless the keeper wrote that Slurm was ending it.

    Args:
        record: what was submitted.
        state: what the keeper has written.
        job: what Slurm says, or None if it does not know the job.
        request: says that somebody asked for the end through us, and who if that is known.
        note: the last line that the job's own log holds.
    """
    status = AppStatus(AppState.SUBMITTED)
    if state is not None:
        status = AppStatus.from_dict(state)
    status.roles = status.roles or _pending(record)
    status.cancel_requested = bool(request)
    status.engine = _in_slurm(state, job)
    if is_terminal(status.state):
        if status.state is AppState.CANCELLED:
            status.msg = request or status.msg
        return status
    if job is None:
        return _forgotten(status, state, request)
    word = clean(job.state)
    status.state = to_state(job.state)
    if word == "COMPLETED":
        _check_completed(status, record, job)
    elif status.state is AppState.CANCELLED:
        _cancelled(status, job, request)
    elif status.state is AppState.FAILED:
        reason = WHY.get(word) or note or "see batch.log"
        status.msg = f"Slurm job {job.id}: {word}: {reason}"
        if job.reason:
            status.msg += f" ({job.reason})"
    elif status.state is AppState.PENDING:
        _describe_waiting(status, state, job)
    elif status.state is AppState.UNKNOWN:
        status.msg = f"Slurm job {job.id} is {job.state!r}, which means nothing to this version"
    if is_terminal(status.state):
        _end_replicas(status)
    elif status.state is AppState.PENDING:
        _requeue_replicas(status)
    return status


def _in_slurm(state: Mapping[str, Any] | None, job: Job | None) -> dict[str, str]:
    """Return the number that Slurm's tools know a job by, and its nodes, as far as known.

    Slurm says it of a job that it knows. Of any other the keeper has noted it.
    """
    noted = state or {}
    number = noted.get("job")
    nodes = noted.get("nodes")
    if job is not None and job.id:
        number = job.id
        nodes = job.nodes
        if ended(job.state):
            nodes = job.nodes or noted.get("nodes")
    known = {"slurm_job": number, "nodes": nodes}
    return {name: text for name, text in known.items() if isinstance(text, str) and text}


def _describe_waiting(status: AppStatus, state: Mapping[str, Any] | None, job: Job) -> None:
    """Say in the status why a job waits.

    A job whose dependency can never be satisfied has failed.
    """
    if job.reason == NEVER:
        status.state = AppState.FAILED
        status.msg = f"Slurm job {job.id}: {_NEVER_SATISFIED}"
        return
    doing = "waiting in Slurm's queue"
    if not status.msg and _was_interrupted(status):
        doing = "interrupted, and waiting in Slurm's queue"
    if clean(job.state) == "SUSPENDED":
        doing = "suspended by Slurm"
    text = f"{doing} as job {job.id}"
    why = in_words(job)
    if why:
        text += f": {why}"
    if status.msg and state is not None:
        text = f"{status.msg}; {text}"
    status.msg = text


def is_unreported(state: Mapping[str, Any] | None, job: Job) -> bool:
    """Tell whether Slurm says COMPLETED, but the keeper has written no end.

    On a shared disk the end may be seen late.
    """
    return clean(job.state) == "COMPLETED" and not written_end(state)


def _check_completed(status: AppStatus, record: Mapping[str, Any], job: Job) -> None:
    """Make a COMPLETED job FAILED unless enough replicas have recorded their success.

    COMPLETED only means that the batch script had exit code 0.
    """
    for role, asked in zip(status.roles, roles_of(record), strict=False):
        states = [replica.state for replica in role.replicas]
        if states.count(AppState.SUCCEEDED) >= needed_replicas(asked):
            continue
        status.state = AppState.FAILED
        failed = states.count(AppState.FAILED)
        if failed:
            why = f"COMPLETED, but {failed} replica(s) of role {role.role!r} failed"
        elif all(state is AppState.PENDING for state in states):
            why = _ENDED_EARLY
        else:
            why = _NO_REPORT
        status.msg = f"Slurm job {job.id}: {why}"
        return


def _cancelled(status: AppStatus, job: Job, request: str) -> None:
    """Say in the status who cancelled a job.

    A job that can never start is cancelled by Slurm itself.
    """
    if job.reason in _DEPENDENCY:
        status.state = AppState.FAILED
        status.msg = f"Slurm job {job.id}: {_NEVER_SATISFIED}"
        return
    if request:
        status.msg = request
        return
    status.msg = f"Slurm job {job.id} was cancelled"
    user = job.state.partition(" by ")[2]  # only sacct says it
    if user:
        status.msg += f" by user {user}"


def _forgotten(status: AppStatus, state: Mapping[str, Any] | None, request: str) -> AppStatus:
    """Return the status of a job that Slurm does not know any more."""
    if state is None or not state.get("signalled"):
        status.state = AppState.UNKNOWN
        status.msg = FORGOTTEN
        return status
    if request:
        status.state = AppState.CANCELLED
        status.msg = request
    else:
        status.state = AppState.FAILED
        status.msg = _ENDED_BY_SLURM
    _end_replicas(status)
    return status


def _end_replicas(status: AppStatus) -> None:
    """Set the end of replicas whose end the keeper has not written. None of them runs.

    Those that ran share the end of the job. The others are cancelled.
    """
    for role in status.roles:
        for replica in role.replicas:
            if is_terminal(replica.state):
                continue
            if replica.state is AppState.RUNNING:
                replica.state = status.state
            else:
                replica.state = AppState.CANCELLED


def _was_interrupted(status: AppStatus) -> bool:
    """Tell whether a replica of a job in the queue has run, and has neither succeeded nor failed."""
    decided = (AppState.SUCCEEDED, AppState.FAILED)
    for role in status.roles:
        for replica in role.replicas:
            if replica.start_time is not None and replica.state not in decided:
                return True
    return False


def _requeue_replicas(status: AppStatus) -> None:
    """Make replicas PENDING that are started again, since the job is in the queue again.

    Slurm has ended those that ran, which nobody has cancelled.
    """
    for role in status.roles:
        for replica in role.replicas:
            if replica.state in (AppState.RUNNING, AppState.CANCELLED):
                replica.state = AppState.PENDING


def _pending(record: Mapping[str, Any]) -> list[RoleStatus]:
    """Return the roles of a job of which nothing was written yet."""
    roles = []
    for role in roles_of(record):
        name = role["name"]
        count = role["num_replicas"]
        replicas = [ReplicaStatus(k, AppState.PENDING, name, "") for k in range(count)]
        roles.append(RoleStatus(name, replicas))
    return roles
