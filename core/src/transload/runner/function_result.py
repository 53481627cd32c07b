"""Read what a Python function that ran as a job returned or raised."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import stat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.errors import AppFailed, SpecError
from transload.runner.function_main import PROGRAM, RESULT
from transload.runner.results import own_store
from transload.runtime.tracking import TrackingError
from transload.runtime.tracking.stores import LocalStore
from transload.runtime.untrusted import RefusedFile
from transload.specs import AppState, AppStatus

if TYPE_CHECKING:
    from transload.runner.job import Job

LARGEST_RESULT: Final = 1 << 30
"""Bytes of a function's result that are read at most."""


class _Reply(NamedTuple):
    """What the program that ran a function wrote at its end.

    Args:
        head: its line of JSON.
        body: the pickled value, or nothing if that must not be read.
        why: why it must not be read.
    """

    head: dict[str, Any]
    body: bytes
    why: str


def result_of(job: Job, status: AppStatus, trust: bool) -> Any:
    """Return what a function returned, or raise what it raised, as `Job.result` says."""
    has_ended = status.state in (AppState.SUCCEEDED, AppState.FAILED)
    reply = _read_reply(job, trust) if has_ended else None
    if reply is None:
        job.check()
        raise AppFailed(status, f"{job.handle}: the result of its function is not there")
    head = reply.head
    if "refused" in head:
        raise SpecError(f"{job.handle}: {head['refused']}")
    if "raised" in head:
        raise _exception(reply, job.handle, status)
    if reply.body:
        return _unpickled(reply, job.handle)
    if "json" in head:
        return head["json"]
    raise SpecError(
        f"{job.handle}: the function returned what is not JSON: {reply.why}: give trust=True, if "
        "you trust whoever can write there"
    )


def _read_reply(job: Job, trust: bool) -> _Reply | None:
    """Return what the last attempt of a function wrote, or None if it wrote nothing."""
    description = job.need_description()
    if description.app is not None and PROGRAM not in description.app.roles[0].args:
        raise SpecError(
            f"{job.handle}: is no function that transload.submit has submitted: use results()"
        )
    store = own_store(job.scheduler, description)
    if store is None:
        return None
    if isinstance(store, LocalStore):  # no link on the way may be turned after it was checked
        store = LocalStore(os.path.realpath(store.base))
    try:
        data = store.read(RESULT, LARGEST_RESULT)
    except (FileNotFoundError, IsADirectoryError, KeyError):
        return None
    except RefusedFile as exc:
        raise TrackingError(f"{job.handle}: its result cannot be read: {exc}") from exc
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict):
        raise TrackingError(f"{job.handle}: its result ({RESULT}) is not one that a job wrote")
    replicas = [each for part in description.status.roles for each in part.replicas]
    attempt = replicas[0].latest_attempt if replicas else 0
    if head.get("attempt") != attempt:
        return None
    why = None
    if not trust:
        why = "it lies on no disk of this machine"
        if isinstance(store, LocalStore):
            why = others_may_write(store.base)
    return _Reply(head, body if why is None else b"", why or "")


def others_may_write(folder: str) -> str | None:
    """Return why a folder may hold what another user wrote, or None if it cannot.

    No part of its path is a link (`os.path.realpath`).
    Each folder on the way belongs to this user or root, and only its owner can write there, unless
    it has the sticky bit. Below one that nobody else can enter, all is well.
    """
    here = folder
    way = [here]
    while way[-1] != "/":
        way.append(os.path.dirname(way[-1]))
    for path in reversed(way):
        found = os.stat(path)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid not in (os.geteuid(), 0):
            return f"{path} belongs to user {found.st_uid}"
        if mode & 0o022 and (path == here or not mode & stat.S_ISVTX):
            return f"others can write to {path} (mode {mode:o})"
        if found.st_uid == os.geteuid() and not mode & 0o077:
            return None
    return None


def _exception(reply: _Reply, handle: str, status: AppStatus) -> BaseException:
    """Return what a function raised, or its text as AppFailed where it cannot be unpickled."""
    text = str(reply.head["raised"])
    error: BaseException = AppFailed(status, text)
    if reply.body:
        with contextlib.suppress(SpecError):  # its text says what it was
            unpickled = _unpickled(reply, handle)
            if isinstance(unpickled, BaseException):
                error = unpickled
    error.add_note(f"raised in {handle}:\n{text}")
    return error


def _unpickled(reply: _Reply, handle: str) -> Any:
    """Return what is in the body of a reply.

    Raises:
        SpecError: if that cannot be read in this process.
    """
    try:
        return pickle.loads(reply.body)  # noqa: S301 - nobody else can have written it, or trusted
    except Exception as exc:
        what = "raised" if "raised" in reply.head else "returned"
        why = f"{type(exc).__name__}: {exc}"
        raise SpecError(f"{handle}: what the function {what} cannot be read here: {why}") from exc
