"""The body of a result file, ``{"schema": 1, "key": …, "results": {…}, …}``, and who writes it.

Values are checked both ways.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from transload import runtime
from transload.errors import TransloadError
from transload.runtime import MAX_TEXT, SCHEMA
from transload.runtime.untrusted import RefusedFile

Results = dict[str, "int | float | str"]

_MOST_NAMES = 100  # of replicas whose results were replaced


class TrackingError(TransloadError, ValueError):
    """A key, name or value cannot be stored, or what is stored cannot be read by this version.

    The message names the place (``result 'loss'``, a path), the value, and what is allowed.
    """


class ResultsGone(TrackingError):
    """What a job reported cannot be read any more: the place where it lay is gone, or out of reach.

    A job that reported nothing is another matter, and no error.
    """


@contextmanager
def told_as_tracking_error(what: str) -> Iterator[None]:
    """Raise an error of a storage or a tracker that reads ``what`` as one `TrackingError`.

    Passwords in it are masked.
    """
    try:
        yield
    except TransloadError:
        raise
    except RefusedFile as error:
        raise TrackingError(f"{what} {error}") from error
    except Exception as error:
        from transload.specs import masked_url

        text = f"{what} cannot be read: {type(error).__name__}: {error}"
        raise TrackingError(masked_url(text)) from error


class Body(NamedTuple):
    """The content of the file of a key.

    Args:
        key: the key. None means that the file's name gives it.
        results: name → value.
        run: handle of the job that wrote it, or None if that is not known.
        writer: its ``role``, ``replica`` and ``attempt``.
        replaced: other replicas of that job, ``role/replica``, whose results of this key were
            replaced.
    """

    key: str | None
    results: Results
    run: str | None = None
    writer: Mapping[str, Any] | None = None
    replaced: tuple[str, ...] = ()


@contextmanager
def _as_tracking_error(where: str = "") -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise TrackingError(f"{where}{error}") from error


def check_key(key: object) -> str:
    """Return ``key`` as text. An int ``k`` is the same key as ``str(k)``.

    Raises:
        TrackingError: it is a bool or of another type, empty, too long, or not valid in UTF-8.
    """
    with _as_tracking_error():
        return runtime.check_key(key)


def check_results(results: Mapping[str, object]) -> Results:
    """Return ``results`` as plain ints, floats and strs.

    Raises:
        TrackingError: a name or value is not allowed. The message names it.
    """
    with _as_tracking_error():
        return runtime.check_results(results)


def load(data: bytes, where: str) -> Body | None:
    """Read the body of a file.

    Args:
        data: what the file holds.
        where: its path, for messages.

    Returns:
        None if the file is not one of ours, or not whole.

    Raises:
        TrackingError: it is of a newer schema, or a key, name or value in it is not allowed.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if type(body) is not dict:
        return None
    schema = body.get("schema")
    if type(schema) is not int or schema < 1:
        return None
    if schema > SCHEMA:
        shown = runtime.shortened(schema)
        raise TrackingError(
            f"{where}: schema {shown}; this version reads up to {SCHEMA}: use a newer transload"
        )
    key = body.get("key")
    results = body.get("results")
    if type(key) is int:
        key = str(key)
    if type(results) is not dict or not (key is None or type(key) is str):
        return None
    with _as_tracking_error(f"{where}: "):
        if key:
            runtime.check_text("key", key)
        results = runtime.check_results(results)
    run = body.get("run")
    if type(run) is not str or len(run) > MAX_TEXT:
        run = None
    replaced = body.get("replaced")
    if type(replaced) is not list:
        replaced = []
    return Body(
        key=key,
        results=results,
        run=run,
        writer=_writer(body.get("writer")),
        replaced=tuple(map(_name, replaced[:_MOST_NAMES])),
    )


def _writer(found: object) -> dict[str, Any] | None:
    """Return what a file says of who wrote it, as far as it can be true."""
    if type(found) is not dict:
        return None
    role, replica, attempt = (found.get(name) for name in ("role", "replica", "attempt"))
    if type(role) is not str or type(replica) is not int or type(attempt) is not int:
        return None
    return {"role": _name(role), "replica": replica, "attempt": attempt}


def _name(found: object) -> str:
    if isinstance(found, str | int):
        return str(found)[:MAX_TEXT]
    return "?"
