"""Read and write the versioned JSON of all that is stored or passed on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, TypeVar

from transload.errors import SpecError
from transload.specs.checks import nearest, refuse

__all__ = ["SCHEMA", "reading", "to_value"]


SCHEMA: Final = 1
"""Number of the JSON forms that this version writes. It reads this one and all older ones."""

_T = TypeVar("_T")
_PLAIN: Final = (str, int, bool)


def dump(data: dict[str, Any], indent: int | None = None) -> str:
    """Return ``data`` as JSON text (NaN and Infinity as Python's json writes them)."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    # bytes of a file name that are not UTF-8 are lone surrogates in a str, and could not be written
    # as they are
    if text.isascii() or text.encode("utf-8", "replace").decode() == text:
        return text
    return json.dumps(data, indent=indent)


def load(text: str | bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in ``text``, checked for its schema number (``schema`` is taken out).

    Raises:
        SpecError: if it is not a JSON object, or of a newer schema.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise SpecError(f"{what}: not valid JSON: {exc}") from exc
    return check_schema(data, what)


def check_schema(data: object, what: str) -> dict[str, Any]:
    """Return ``data`` without its ``schema``, which must be 1 to `SCHEMA`."""
    if not isinstance(data, Mapping):
        refuse(what, data, "must be a JSON object")
    data = dict(data)
    schema = data.pop("schema", SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        refuse(f"{what}.schema", schema, "must be a positive int")
    if schema > SCHEMA:
        refuse(
            f"{what}.schema",
            schema,
            f"is newer than this version of transload reads ({SCHEMA}): upgrade transload",
        )
    return data


@contextmanager
def reading(what: str, data: object) -> Iterator[dict[str, Any]]:
    """Give our own JSON values, checked for their schema, to a block of code.

    An error of the block becomes one clear SpecError.

    Raises:
        SpecError: if they are not such values, or of a newer schema.
    """
    values = check_schema(data, what)
    try:
        yield values
    except SpecError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise SpecError(f"{what}: not the JSON form of one: {exc!r}") from exc


def canonical(value: Any) -> str:
    """Return an object as JSON text that is equal for equal objects.

    The order of dict keys does not matter. Fields that hold their default are left out, so that a
    field added by a later version does not change the text.
    """
    return json.dumps(
        to_value(value, compact=True), sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )


def sha256(data: bytes) -> str:
    """Return the hex digits of SHA-256, from Python's own module.

    To load hashlib, and OpenSSL with it, would take a tenth of a short command's time.
    """
    try:
        module = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256")
    except ImportError:  # a Python that was built without it
        module = import_module("hashlib")
    return str(module.sha256(data).hexdigest())


def to_value(value: Any, compact: bool = False) -> Any:
    """Return a dataclass, and all that is in it, as JSON values.

    All fields are written. Enums of numbers are written by name.
    """
    if value is None or type(value) in _PLAIN:  # most are
        return value
    if isinstance(value, Enum):
        return value.name if isinstance(value, int) else value.value
    if hasattr(value, "__dataclass_fields__"):
        return _fields(value, compact)
    if isinstance(value, dict):
        return {key: to_value(item, compact) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_value(item, compact) for item in value]
    if compact and isinstance(value, float) and value.is_integer():
        # 1 and 1.0 make equal apps, and other tools write the one for the other
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)
    return value


def _fields(value: Any, compact: bool) -> dict[str, Any]:
    result = {}
    # where one field holds objects of several classes
    kind = getattr(type(value), "JSON_TYPE", None)
    if kind is not None:
        result["type"] = kind
    # fields of later versions are left out as long as they hold their default
    when_set = getattr(type(value), "WHEN_SET", ())
    left_out = getattr(type(value), "NOT_IN_DIGEST", ()) if compact else ()
    for name, default in _defaults(type(value)).items():  # type: ignore[arg-type]  # a class is hashable
        content = getattr(value, name)
        if name in when_set and content == default:
            continue
        if name in left_out:
            continue
        if not compact or default is NO_DEFAULT or content != default:
            result[name] = to_value(content, compact)
    return result


@lru_cache(maxsize=None)
def _defaults(kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a dataclass, and the default of each, which nobody changes."""
    defaults = {}
    for item in fields(kind):
        if item.default_factory is NO_DEFAULT:
            defaults[item.name] = item.default
        else:
            defaults[item.name] = item.default_factory()
    return defaults


def build(cls: type[_T], data: Any, path: str) -> _T:
    """Build a dataclass from JSON values, which must be its fields and no others.

    Args:
        cls: the dataclass.
        data: the JSON values.
        path: where they stand, which begins the message.

    Raises:
        SpecError: for an unknown or missing field, or a wrong value.
    """
    if not isinstance(data, Mapping):
        refuse(path, data, "must be a JSON object")
    known = _defaults(cls)  # type: ignore[arg-type]  # a class is hashable
    for key in data:
        if key not in known:
            raise SpecError(f"{path}: unknown field {key!r}: {nearest(str(key), list(known))}")
    for name, default in known.items():
        if default is NO_DEFAULT and name not in data:
            raise SpecError(f"{path}: the field {name!r} is missing")
    try:
        return cls(**data)
    except SpecError as exc:
        # the constructor names the class, but the reader of JSON must know which object it was
        raise SpecError(str(exc).replace(f"{cls.__name__}.", f"{path}.", 1)) from exc
