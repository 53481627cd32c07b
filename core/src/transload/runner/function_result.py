"""Read, verify and unpickle the result or exception of a Python function that ran as a job."""

from __future__ import annotations

import contextlib
import hmac
import json
import pickle
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.components.programs.call_main import KEY, PROGRAM, RESULT, signature
from transload.errors import AppFailed, ConfigError, SpecError
from transload.runner.function_keys import find_key, key_path
from transload.runner.results import own_store
from transload.runtime.tracking import TrackingError
from transload.runtime.untrusted import RefusedFile
from transload.specs import AppStatus, Role, parse_app_handle

if TYPE_CHECKING:
    from transload.runner.job import Job

LARGEST_RESULT: Final = 1 << 30
"""Bytes of a function's result that are read at most."""


class Reply(NamedTuple):
    """What the program that ran a function wrote at its end.

    Args:
        head: its JSON part.
        body: the pickled value, which is empty unless the job itself signed it.
    """

    head: dict[str, Any]
    body: bytes


def read_reply(job: Job, *, safe: bool) -> Reply | None:
    """Return the file that the last attempt of a function wrote, or None if it wrote nothing.

    Raises:
        SpecError: if the job is no function.
        ConfigError: if its key is not here, and ``safe`` is not given.
        TrackingError: if what is there was not written by this job.
    """
    handle = job.handle
    description = job.need_description()
    key = find_key(handle)
    has_key = True
    if description.app is not None:
        role = description.app.roles[0]
        _check_is_function(role, handle)
        has_key = KEY in role.secrets
    if key is None and has_key and not safe:
        raise ConfigError(
            f"{handle}: the key of this function's result is not here ({key_path(handle)}): only "
            "who "
            "submitted it can unpickle the result; result(safe=True) reads one that is JSON, "
            "whoever wrote it"
        )
    store = own_store(job.scheduler, description)
    if store is None:
        return None
    try:
        data = store.read(RESULT, LARGEST_RESULT)
    except (FileNotFoundError, IsADirectoryError, KeyError):
        return None
    except RefusedFile as exc:
        raise TrackingError(f"{handle}: its result cannot be read: {exc}") from exc
    replicas = [each for part in description.status.roles for each in part.replicas]
    attempt = 0
    if replicas:
        attempt = replicas[0].latest_attempt
    return _checked(handle, data, key, attempt)


def _check_is_function(role: Role, handle: str) -> None:
    if role.args[-1:] == ["call.py"]:
        raise SpecError(
            f"{handle}: an earlier version of transload submitted it, so its result is not signed: "
            "submit it again"
        )
    if PROGRAM not in role.args:
        raise SpecError(
            f"{handle}: is no function that transload.submit has submitted: use results()"
        )


def _checked(handle: str, data: bytes, key: str | None, attempt: int) -> Reply | None:
    """Return what a result file holds, or None if an earlier attempt wrote it.

    Raises:
        TrackingError: if it is not signed with the key, where there is one, or was signed for
            another job.
    """
    signed, _, said = data.partition(b"\n")
    if key is not None and not hmac.compare_digest(signed, signature(key, said).encode()):
        raise TrackingError(
            f"{handle}: its result ({RESULT}) is not signed with the key of this job: somebody "
            "else wrote it. "
            "It was not read"
        )
    line, _, body = said.partition(b"\n")
    head = _head(line)
    if head is None or head.get("app") != parse_app_handle(handle).app_id:
        raise TrackingError(f"{handle}: its result ({RESULT}) is not one that this job wrote")
    if head.get("attempt") != attempt:
        return None
    return Reply(head, body if key is not None else b"")


def _head(line: bytes) -> dict[str, Any] | None:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict):
        return None
    return head


def value_of(reply: Reply, handle: str, status: AppStatus, *, safe: bool) -> Any:
    """Return what a function returned, or raise what it raised.

    The errors are those of `transload.Job.result`.
    """
    head = reply.head
    if "refused" in head:
        raise SpecError(f"{handle}: {head['refused']}")
    if "raised" in head:
        error: BaseException = AppFailed(status, str(head["raised"]))
        if reply.body and not safe:
            with contextlib.suppress(SpecError):  # its text says what it was
                unpickled = _unpickled(reply, handle)
                if isinstance(unpickled, BaseException):
                    error = unpickled
        error.add_note(f"raised in {handle}:\n{head['raised']}")
        raise error
    if "json" in head:
        return head["json"]
    if safe or not reply.body:
        raise SpecError(
            f"{handle}: the function returned what is not JSON: with safe=True only JSON is read"
        )
    return _unpickled(reply, handle)


def _unpickled(reply: Reply, handle: str) -> Any:
    """Return what is in the body of a reply.

    Raises:
        SpecError: if that cannot be read in this process.
    """
    try:
        return pickle.loads(reply.body)  # noqa: S301 - signed by the job itself
    except Exception as exc:
        what = "raised" if "raised" in reply.head else "returned"
        why = f"{type(exc).__name__}: {exc}"
        raise SpecError(f"{handle}: what the function {what} cannot be read here: {why}") from exc
