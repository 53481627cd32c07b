"""Read and write the messages between a process here and the helper.

They are lines of JSON, some followed by bytes.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from transload import errors
from transload.schedulers.api import (
    AppDescription,
    ListAppResponse,
    LogPage,
    LogQuery,
    Stream,
    Submission,
)
from transload.specs import AppDef, AppState, AppStatus, Progress, RetryPolicy
from transload_slurm.convert import RoleRequest, SlurmRequest

Message = dict[str, Any]

HELLO: Final = "transload-slurm-helper"
"""Begins the first line of the helper. What a login shell prints before it is ignored."""

SILENCE_S: Final = 60.0
"""Seconds without a message after which a side takes the connection for lost."""

_READ: Final = 1 << 16


def clock() -> float:
    """Return for how many seconds this machine has been up, suspended or not."""
    which = getattr(time, "CLOCK_BOOTTIME", None)  # Linux has it
    if which is None:
        return time.monotonic()
    return time.clock_gettime(which)


class Channel:
    """Two pipes, one for each direction. Any thread may write, and one reads.

    A message with ``bytes`` is followed by that number of bytes.
    """

    def __init__(self, reads: int, writes: int) -> None:
        self._reads = reads
        self._writes = writes
        self._lock = threading.Lock()
        self._buffer = b""

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Write a message.

        Raises:
            OSError: if nobody reads any more.
        """
        if payload:
            message = {**message, "bytes": len(payload)}
        self.raw(json.dumps(message).encode() + b"\n" + payload)

    def raw(self, text: bytes) -> None:
        """Write bytes as they are."""
        data = memoryview(text)
        with self._lock:
            while data:
                data = data[os.write(self._writes, data) :]

    def line(self) -> bytes | None:
        """Return the next line without its end, or None at the end of the input."""
        while b"\n" not in self._buffer:
            data = os.read(self._reads, _READ)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def messages(self) -> Iterator[tuple[Message, bytes]]:
        """Yield what comes, until the end of the input."""
        while True:
            line = self.line()
            if line is None:
                return
            message = json.loads(line)
            payload = self._exactly(message.get("bytes", 0))
            if payload is None:
                return
            yield message, payload

    def _exactly(self, size: int) -> bytes | None:
        """Return this number of bytes, or None if the input ends before."""
        parts = [self._buffer[:size]]
        missing = size - len(self._buffer)
        self._buffer = self._buffer[size:]
        while missing > 0:
            data = os.read(self._reads, min(missing, 1 << 20))
            if not data:
                return None
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)


# -- errors


def error_to_dict(exc: BaseException) -> Message:
    """Return an exception in a form that travels."""
    more = {
        name: getattr(exc, name)
        for name in ("transient", "app_id", "app_handle", "field")
        if hasattr(exc, name)
    }
    return {"type": type(exc).__name__, "message": str(exc), **more}


def error_from_dict(data: Message) -> errors.TransloadError:
    """Return the exception that `error_to_dict` was given.

    One that this package does not know becomes a SchedulerUnavailable.
    """
    kind = data["type"]
    message = data["message"]
    if kind == "SubmitError":
        return errors.SubmitError(message, transient=bool(data.get("transient")))
    if kind == "AppExists":
        return errors.AppExists(data.get("app_id", ""), message)
    if kind == "AppNotFound":
        return errors.AppNotFound(data.get("app_handle", ""), message)
    if kind == "UnsupportedFeature":
        return errors.UnsupportedFeature(message, data.get("field", ""))
    if kind in ("SpecError", "ConfigError", "SchedulerUnavailable"):
        made: errors.TransloadError = getattr(errors, kind)(message)
        return made
    return errors.SchedulerUnavailable(f"{kind}: {message}")


# -- what is submitted


def request_to_dict(request: SlurmRequest, workspaces: list[str | None]) -> Message:
    """Return a request, with the name of its list of files in place of each role's workspace."""
    data = asdict(request)
    for role, name in zip(data["roles"], workspaces, strict=True):
        role["workspace"] = name
        role["retry_policy"] = RetryPolicy(role["retry_policy"]).value
    return data


def request_from_dict(data: Message, tracker_base: str | None = None) -> SlurmRequest:
    """Return a request, with paths in the user's home made absolute, since here it is known.

    Args:
        data: what `request_to_dict` returned.
        tracker_base: where the job reports, as it was sent. Arguments, variables and options may
            have it anywhere in their text.
    """
    roles = []
    for role in data["roles"]:
        role = {**role, "retry_policy": RetryPolicy(role["retry_policy"])}
        places = (tracker_base, role["checkpoints"], role["packages"])
        own = [folder for folder in places if folder]
        role["entrypoint"] = _with_absolute(own, role["entrypoint"])
        for name in ("cwd", "checkpoints", "image", "packages"):
            role[name] = role[name] and os.path.expanduser(role[name])
        for name in ("args", "sbatch", "srun"):
            role[name] = [_with_absolute(own, text) for text in role[name]]
        role["env"] = {
            name: _with_absolute(own, _at_home(name, value)) for name, value in role["env"].items()
        }
        roles.append(RoleRequest(**role))
    folder = data["job_dir"] and os.path.expanduser(data["job_dir"])
    base = data["checkpoint_base"] and os.path.expanduser(data["checkpoint_base"])
    found = {"job_dir": folder, "checkpoint_base": base}
    found["python"] = os.path.expanduser(data["python"])
    return SlurmRequest(**{**data, "roles": roles, **found})


def _with_absolute(folders: Sequence[str], text: str) -> str:
    """Return a text in which these folders of a job are absolute. They have its id or name."""
    for folder in folders:
        if folder.startswith("~"):
            text = text.replace(folder, os.path.expanduser(folder))
    return text


def _at_home(name: str, value: str) -> str:
    """Return the value of a variable, with ``~/`` in one of ours replaced by the home folder."""
    if name.startswith("TRANSLOAD_") and value.startswith("~/"):
        return os.path.expanduser(value)
    return value


def submission_to_dict(submission: Submission) -> Message:
    """Return a submission with its secrets, for a pipe between our own processes."""
    return {
        "app": submission.app.to_json(),
        "digest": submission.digest,
        "session": submission.session,
        "cfg": dict(submission.cfg),
        "tracker_base": submission.tracker_base,
        "parent_run_id": submission.parent_run_id,
        "id_given": submission.id_given,
        "secrets": {role: dict(values) for role, values in submission.secrets.items()},
        "checkpoints": submission.checkpoints,
        "asked": dict(submission.asked),
    }


def submission_from_dict(data: Message) -> Submission:
    """Return a submission.

    Of the environment a job gets the allow-list, as it is on the login node.
    """
    base = data["tracker_base"]
    if base and base.startswith("~"):
        base = os.path.expanduser(base)
    app = AppDef.from_json(data["app"])
    return Submission(**{**data, "app": app, "tracker_base": base, "inherit_env": False})


# -- what is read


def description_to_dict(found: AppDescription) -> Message:
    """Return what is known of a job."""
    names = (
        "app_id",
        "session",
        "cfg",
        "digest",
        "tracker_base",
        "parent_run_id",
        "created",
        "log_url",
        "checkpoints",
        "asked",
    )
    app = None if found.app is None else found.app.to_json()
    return {
        **{name: getattr(found, name) for name in names},
        "status": found.status.to_json(),
        "app": app,
    }


def description_from_dict(data: Message) -> AppDescription:
    """Return what `description_to_dict` was given."""
    app = None if data["app"] is None else AppDef.from_json(data["app"])
    return AppDescription(**{**data, "status": AppStatus.from_json(data["status"]), "app": app})


def row_to_dict(row: ListAppResponse) -> Message:
    """Return a row of a list of jobs."""
    return {**asdict(row), "state": row.state.name}


def row_from_dict(data: Message) -> ListAppResponse:
    """Return what `row_to_dict` was given."""
    progress = Progress.from_value(data["progress"])
    return ListAppResponse(**{**data, "state": AppState[data["state"]], "progress": progress})


def query_to_dict(query: LogQuery) -> Message:
    """Return what is asked of a log."""
    return asdict(query)


def query_from_dict(data: Message) -> LogQuery:
    """Return what `query_to_dict` was given."""
    return LogQuery(**{**data, "stream": Stream(data["stream"])})


def page_to_dict(page: LogPage) -> Message:
    """Return a page of a log."""
    return asdict(page)


def page_from_dict(data: Message) -> LogPage:
    """Return what `page_to_dict` was given."""
    return LogPage(**{**data, "stamps": [(index, when) for index, when in data["stamps"]]})
