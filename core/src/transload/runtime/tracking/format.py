"""The body of a result file, ``{"schema": 1, "key": …, "results": {…}, …}``, and who writes it.

Values are checked both ways.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from transload.errors import TransloadError
from transload.runtime.untrusted import RefusedFile

SCHEMA = 1
"""The number that this version writes, and the newest that it reads."""

MAX_TEXT = 1024
"""Longest key, result name or text value, in bytes of UTF-8.

It is also the largest number of decimal digits of a whole number.
"""

Results = dict[str, "int | float | str"]

_MOST_NAMES = 100  # of replicas whose results were replaced
_MAX_BITS = 3402  # 2**3402 is the first power of two with more than 1024 digits
_HINTS = {"NoneType": "leave the name out", "bytes": "decode it to str"}


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


class Writer(NamedTuple):
    """The replica that this process belongs to.

    Args:
        key: its key, which is its number, with several roles ``role/number``.
        name: ``role/number``.
        alone: no other replica belongs to the job.
        fields: what a file says of who wrote it.
    """

    key: str
    name: str
    alone: bool
    fields: dict[str, Any]

    @classmethod
    def from_env(cls) -> Writer | None:
        """Return the writer that this process is, or None outside of a job."""
        env = os.environ
        run = env.get("TRANSLOAD_JOB_ID")
        if not run:
            return None
        replica = _number(env.get("TRANSLOAD_REPLICA_ID", ""))
        attempt = _number(env.get("TRANSLOAD_RETRY", ""))
        role = env.get("TRANSLOAD_ROLE", "")
        has_many_roles = "," in env.get("TRANSLOAD_ROLES", "")
        name = f"{role}/{replica}"
        return cls(
            key=name if has_many_roles else str(replica),
            name=name,
            alone=env.get("TRANSLOAD_NUM_REPLICAS") == "1" and not has_many_roles,
            fields={
                "run": run,
                "writer": {"role": role, "replica": replica, "attempt": attempt},
            },
        )


def _number(text: str) -> int:
    """Return the number that a variable holds, or 0 if it holds none."""
    if not text.isdigit():
        return 0
    return int(text)


def check_key(key: object) -> str:
    """Return ``key`` as text. An int ``k`` is the same key as ``str(k)``.

    Raises:
        TrackingError: it is a bool or of another type, empty, too long, or not valid in UTF-8.
    """
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise TrackingError(f"key={key!r}: {type(key).__name__}; a key is an int or a str")
    if isinstance(key, int):
        text = str(_check_int("key", key))
    else:
        text = str.__str__(key)
    if not text:
        raise TrackingError("key='': empty; a key has at least one character")
    _check_text("key", text)
    return text


def check_results(results: Mapping[str, object]) -> Results:
    """Return ``results`` as plain ints, floats and strs.

    Raises:
        TrackingError: a name or value is not allowed. The message names it.
    """
    checked: Results = {}
    for name, value in results.items():
        if type(name) is not str:
            if not isinstance(name, str):
                raise TrackingError(f"result name {name!r}: {type(name).__name__}; names are str")
            name = str.__str__(name)
        _check_text("result name", name)
        if type(value) is float:
            checked[name] = value
        else:
            checked[name] = check_value(name, value)
    return checked


def check_value(name: str, value: object) -> int | float | str:
    """Return a value as a plain int, float or str.

    A bool becomes 0 or 1. A scalar of numpy or torch becomes its ``item()``.

    Raises:
        TrackingError: it is not allowed.
    """
    what = f"result {name!r}"
    if isinstance(value, str):
        text = str.__str__(value)
        _check_text(what, text)
        return text
    if isinstance(value, int):
        return _check_int(what, value)
    if isinstance(value, float):
        return float(value)
    item = getattr(value, "item", None)
    if callable(item):
        try:
            plain = item()
        except Exception as exc:  # of more than one element, or on a device that has gone
            raise TrackingError(f"{what}={_short(value)}: {exc}") from exc
        if isinstance(plain, int | float | str):
            return check_value(name, plain)
    kind = type(value).__name__
    hint = _HINTS.get(kind) or "store one name per number"
    raise TrackingError(
        f"{what}={_short(value)}: {kind}; a value is an int, a float or a str ({hint})"
    )


def _check_int(what: str, value: int) -> int:
    if value.bit_length() >= _MAX_BITS:
        raise TrackingError(
            f"{what}: a whole number of {value.bit_length()} bits; at most {MAX_TEXT} decimal "
            "digits"
        )
    return int(value)


def _check_text(what: str, text: str) -> None:
    # one character is at most four bytes, so most texts need no encoding to be measured
    if len(text) * 4 <= MAX_TEXT and text.isascii():
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise TrackingError(
            f"{what}={_short(text)}: holds a lone surrogate, which UTF-8 cannot"
        ) from exc
    if size > MAX_TEXT:
        raise TrackingError(f"{what}={_short(text)}: {size} bytes in UTF-8; at most {MAX_TEXT}")


def _short(value: object) -> str:
    text = repr(value)
    if len(text) <= 60:
        return text
    return text[:57] + "..."


def dump(key: str, results: Results, more: Mapping[str, object] | None = None) -> bytes:
    """Return the body of a file. NaN and the infinities are written as Python's json does."""
    return json.dumps({"schema": SCHEMA, "key": key, "results": results, **(more or {})}).encode()


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
        shown = _short(schema)
        raise TrackingError(
            f"{where}: schema {shown}; this version reads up to {SCHEMA}: use a newer transload"
        )
    key = body.get("key")
    results = body.get("results")
    if type(key) is int:
        key = str(key)
    if type(results) is not dict or not (key is None or type(key) is str):
        return None
    try:
        if key:
            _check_text("key", key)
        results = check_results(results)
    except TrackingError as exc:
        raise TrackingError(f"{where}: {exc}") from exc
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
