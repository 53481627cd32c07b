"""Read and write the messages between a process here and the helper.

They are lines of JSON, some followed by bytes.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Final

from transload import errors
from transload.schedulers.api import (
    AppDescription,
    CheckpointFolder,
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

_KINDS: Final[Mapping[str, Any]] = {
    kind.__name__: kind
    for kind in (
        AppDescription,
        CheckpointFolder,
        ListAppResponse,
        LogPage,
        LogQuery,
        Progress,
        RoleRequest,
        SlurmRequest,
        Submission,
    )
}
"""The dataclasses that travel, by name."""

_CHOICES: Final[Mapping[str, Any]] = {
    kind.__name__: kind for kind in (AppState, RetryPolicy, Stream)
}
_SPECS: Final[Mapping[str, Any]] = {kind.__name__: kind for kind in (AppDef, AppStatus)}
"""What has a JSON form of its own."""


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


# -- values


def to_json(value: Any) -> Any:
    """Return a value as JSON. An object there has one key, which says what it stands for."""
    if isinstance(value, Enum):
        return {type(value).__name__: value.name}
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {"dict": {name: to_json(each) for name, each in value.items()}}
    kind = type(value).__name__
    if kind in _SPECS:
        return {kind: value.to_json()}
    if kind in _KINDS:
        names = [field.name for field in fields(value)]
        return {kind: {name: to_json(getattr(value, name)) for name in names}}
    listed = [to_json(each) for each in value]
    if isinstance(value, (tuple, set)):
        return {kind: listed}
    return listed


def from_json(value: Any) -> Any:
    """Return what `to_json` was given."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind in _CHOICES:
        return _CHOICES[kind][inner]
    if kind in _SPECS:
        return _SPECS[kind].from_json(inner)
    if kind in ("tuple", "set"):
        listed = from_json(inner)
        return tuple(listed) if kind == "tuple" else set(listed)
    found = {name: from_json(each) for name, each in inner.items()}
    if kind == "dict":
        return found
    return _KINDS[kind](**found)


def error_to_json(exc: errors.TransloadError) -> Message:
    """Return an exception in a form that travels."""
    return {"type": type(exc).__name__, "message": str(exc), "attributes": to_json(vars(exc))}


def error_from_json(data: Message) -> errors.TransloadError:
    """Return the exception that `error_to_json` was given."""
    kind = getattr(errors, data["type"], errors.SchedulerUnavailable)
    made: errors.TransloadError = kind.__new__(kind, data["message"])
    vars(made).update(from_json(data["attributes"]))
    return made
