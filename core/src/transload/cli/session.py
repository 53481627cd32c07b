"""Open a runner, complete handles, and raise errors for unknown jobs, for all commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError, TransloadError
from transload.runner import Job, Runner, get_runner, load_settings
from transload.specs import (
    AppHandle,
    AppState,
    AppStatus,
    MalformedAppHandleException,
    make_app_handle,
    parse_app_handle,
)
from transload.specs.checks import closest

if TYPE_CHECKING:
    from transload.schedulers import AppDescription

__all__ = [
    "description_of",
    "find_job",
    "full_handle",
    "open_runner",
    "other_clusters",
    "split_handle",
]


SESSION = "transload"
"""Name of the session under which the command line submits."""


@contextmanager
def open_runner() -> Iterator[Runner]:
    """Open a runner, and close it at the end."""
    with get_runner(SESSION) as runner:
        yield runner


def full_handle(text: str) -> AppHandle:
    """Return the full handle for a handle or a job id of the default scheduler."""
    if text in AppState.__members__:
        raise SpecError(
            f"{text!r} is a state, not a handle (of a line of `transload list`, give the first "
            "column)"
        )
    if "://" in text:
        parse_app_handle(text)
        return text
    if not text or "/" in text or any(map(str.isspace, text)):
        raise MalformedAppHandleException(text)
    return make_app_handle(load_settings().scheduler, SESSION, text)


class Named(NamedTuple):
    """The parts of the argument HANDLE[/ROLE[/K]]."""

    handle: str
    role: str | None = None
    numbers: str | None = None


def split_handle(text: str, form: str = "HANDLE[/ROLE[/K,K…]]") -> Named:
    """Split ``HANDLE/ROLE/K`` into its parts."""
    scheme, separator, rest = text.partition("://")
    if separator:
        session, *parts = rest.split("/")
        handle = "/".join([f"{scheme}://{session}", *parts[:1]])
        extra = parts[1:]
    elif ":/" in text:  # a mistyped handle, not a job id and a role
        return Named(text)
    else:
        handle, *extra = text.split("/")
    if len(extra) > 2:
        raise SpecError(f"{text!r}: must be of the form {form}")
    return Named(handle, *[part or None for part in extra])


def find_job(runner: Runner, text: str) -> Job:
    """Return the job for a handle or job id, which may not exist.

    Raises:
        UnknownSchedulerException: if there is no such scheduler.
    """
    job = runner.job(full_handle(text))
    runner.scheduler(parse_app_handle(job.handle).scheduler_backend)
    return job


def not_found(job: Job) -> AppNotFound:
    """Return the error for a job that does not exist, with the most similar id that does."""
    message = f"no such job: {job.handle} (never submitted, or already deleted)"
    try:
        known = [row.app_id for row in job.scheduler.list()]
    except TransloadError:
        known = []
    scheduler = parse_app_handle(job.handle).scheduler_backend
    close = closest(job.app_id, known)
    hint = f"type `transload list -s {scheduler}` to see those that exist"
    if close is not None:
        hint = f"did you mean {close!r}?"
    elsewhere = _elsewhere(scheduler, job.app_id)
    message = "; ".join(filter(None, (message, elsewhere, hint)))  # a question is the last
    return AppNotFound(job.handle, message)


def _elsewhere(scheduler: str, app_id: str) -> str:
    """Return how to name a job of a configured cluster, where the default scheduler was looked in.

    The text is empty if there is no other cluster.
    """
    settings = load_settings()
    others = other_clusters(scheduler)
    if scheduler != settings.scheduler or not others:
        return ""
    handle = make_app_handle(others[0], SESSION, app_id)
    return f"a job of a cluster has the cluster's name before it, as in {handle}"


def other_clusters(scheduler: str) -> list[str]:
    """Return the names of the configured clusters, without this one."""
    return [name for name in load_settings().clusters() if name != scheduler]


def status_of(job: Job) -> AppStatus:
    """Return the status of a job, which must exist, or UNKNOWN if its scheduler cannot say."""
    return seen(job).status


def seen(job: Job) -> AppDescription:
    """Return what is known of a job, which must exist: nothing if its scheduler cannot say."""
    from transload.schedulers.api import AppDescription

    try:
        return description_of(job)
    except SchedulerUnavailable as exc:
        return AppDescription(job.app_id, AppStatus(AppState.UNKNOWN, msg=str(exc)))


def description_of(job: Job) -> AppDescription:
    """Return the description of a job, which must exist.

    From then on the job has the handle that its submit returned, however it was named here.
    """
    description = job.description()
    if description is None:
        raise not_found(job)
    if description.session:
        parsed = parse_app_handle(job.handle)
        job.handle = make_app_handle(parsed.scheduler_backend, description.session, parsed.app_id)
    return description
