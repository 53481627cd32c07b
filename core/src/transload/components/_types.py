"""The types that a signature may hold: how each is decoded, how it is shown, why another one is refused."""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, Literal, Union, get_args, get_origin

_NONE: Final = type(None)
_LISTS: Final = (list, Sequence, MutableSequence, Iterable)
_DICTS: Final = (dict, Mapping, MutableMapping)
_KEYS: Final = ("str", "int", "float", "bool", "enum", "literal", "any")


def plain_type(tp: Any) -> Any:
    """Return the type behind a NewType, an Annotated or a ``type`` alias."""
    while True:
        if hasattr(tp, "__supertype__"):
            tp = tp.__supertype__
        elif hasattr(tp, "__metadata__"):
            tp = tp.__origin__
        elif type(tp).__name__ == "TypeAliasType":
            tp = tp.__value__
        else:
            return tp


def kind_of(tp: Any) -> str:
    """Return how a type is decoded: ``int``, ``list``, ``union`` …; ``""`` if it is not supported."""
    tp = plain_type(tp)
    if tp in (str, int, float, bool):
        return str(tp.__name__)
    if tp is Any or tp is object:
        return "any"
    if tp is None or tp is _NONE:
        return "none"
    origin = get_origin(tp) or tp
    for kind, known in (("union", (Union, types.UnionType)), ("literal", (Literal,)), ("list", _LISTS)):
        if origin in known:
            return kind
    if origin in _DICTS:
        return "dict"
    if origin is tuple:
        return "tuple"
    return _class_kind(tp)


def _class_kind(tp: Any) -> str:
    if not isinstance(tp, type):
        return ""
    if issubclass(tp, Enum):
        return "enum"
    if issubclass(tp, os.PathLike):
        return "path"
    return "dataclass" if is_dataclass(tp) else ""


def type_name(tp: Any) -> str:
    """Return how a type is shown: ``int``, ``list[str]``, ``a|b`` for a Literal or an Enum."""
    tp = plain_type(tp)
    kind = kind_of(tp)
    if kind == "literal":
        return "|".join(str(item.name if isinstance(item, Enum) else item) for item in get_args(tp))
    if kind == "enum":
        return "|".join(tp.__members__)
    if kind == "union":
        return " | ".join(dict.fromkeys(type_name(item) for item in get_args(tp)))
    if kind == "none":
        return "None"
    if kind in ("list", "dict", "tuple") and get_args(tp):
        return f"{kind}[{', '.join('...' if item is ... else type_name(item) for item in get_args(tp))}]"
    return kind if kind in ("list", "dict", "tuple", "any") else getattr(tp, "__name__", str(tp))


def type_problem(tp: Any, seen: tuple[Any, ...] = ()) -> str | None:
    """Return why values of a type cannot be given as arguments, or None if they can."""
    tp = plain_type(tp)
    kind = kind_of(tp)
    if kind == "" or (kind in ("any", "none") and not seen):
        allowed = "str, int, float, bool, list, tuple, dict, Optional, Union, Literal, Enum, Path, a dataclass"
        return f"type {type_name(tp)!r} is not supported; use one of: {allowed}"
    if tp in seen:
        return None
    parts: list[Any] = [item for item in get_args(tp) if item is not ...] if kind != "literal" else []
    if kind == "dict" and parts and kind_of(parts[0]) not in _KEYS:
        return f"type {type_name(tp)!r} is not supported: the keys of a dict must be str, int, float, bool or an Enum"
    if kind == "dataclass":
        try:
            hints = typing.get_type_hints(tp)
        except Exception as exc:
            return f"the fields of dataclass {tp.__name__} cannot be read: {exc}"
        parts = [hints[item.name] for item in fields(tp) if item.init]
    for part in parts:
        problem = type_problem(part, (*seen, tp))
        if problem is not None:
            return problem
    return None
