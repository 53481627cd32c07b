"""Turning text from a command line, or a value from JSON, into what an annotation asks for.

`decode_text` reads what a person typed, `decode_value` what JSON or a program gave; a str that is given where another
type is due is read as if it had been typed, so that both ways accept the same.
"""

from __future__ import annotations

import json
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, Final, NoReturn, get_args

from transload.components._errors import ComponentArgumentError
from transload.components._types import kind_of, plain_type, type_name
from transload.errors import SpecError
from transload.specs._check import nearest, shorten
from transload.specs._secrets import MASK, looks_secret
from transload.specs._text import parse_bool, split_list, split_pairs

# a text that several members of a union could hold goes to the first of these
_RANK: Final = ("literal", "enum", "int", "float", "bool", "list", "tuple", "dict", "dataclass", "path", "any", "str")
_CONTAINERS: Final = {"list", "tuple", "dict", "dataclass"}


def refuse_value(path: str, value: object, allowed: str) -> NoReturn:
    """Raise ComponentArgumentError saying where, what and what is allowed; what looks secret is masked."""
    telling = isinstance(value, Mapping) or (isinstance(value, str) and "=" in value)
    hidden = looks_secret(path.rpartition(" ")[2].lstrip("-")) or (telling and looks_secret(str(value)))
    raise ComponentArgumentError(f"{path}={MASK if hidden else shorten(value)}: {allowed}")


# ---------------------------------------------------------------------------------------------------------------- text


def decode_text(text: str, tp: Any, path: str) -> Any:
    """Return what a typed ``text`` means for the type ``tp``.

    Args:
        text: as typed.
        tp: an annotation that a component may have.
        path: where it was given, for the message (``--num_replicas``).

    Raises:
        ComponentArgumentError: for a text that does not spell such a value.
    """
    tp = plain_type(tp)
    return _FROM_TEXT[kind_of(tp)](text, tp, path)


def _text_number(text: str, tp: Any, path: str) -> Any:
    try:
        return tp(text)
    except ValueError:
        refuse_value(path, text, "must be an int" if tp is int else "must be a number")


def _text_bool(text: str, tp: Any, path: str) -> bool:
    try:
        return parse_bool(text)
    except SpecError:
        refuse_value(path, text, "must be true or false (also yes/no, on/off, 1/0)")


def _text_none(text: str, tp: Any, path: str) -> None:
    if text.strip().lower() not in ("", "none", "null"):
        refuse_value(path, text, "must be none")


def _text_union(text: str, tp: Any, path: str) -> Any:
    members = [plain_type(item) for item in get_args(tp)]
    optional = any(kind_of(item) == "none" for item in members)
    members = sorted((item for item in members if kind_of(item) != "none"), key=lambda item: _rank(kind_of(item)))
    if optional and str not in members and not text.strip():
        return None
    for member in members:
        literal = text.lstrip()[:1] in ("[", "{")
        if str in members and kind_of(member) in _CONTAINERS and not literal:
            continue
        try:
            return decode_text(text, member, path)
        except ComponentArgumentError:
            if len(members) == 1 and not (optional and text.strip().lower() in ("none", "null")):
                raise
    if optional and text.strip().lower() in ("none", "null"):
        return None
    refuse_value(path, text, f"must be {type_name(tp)}")


def _rank(kind: str) -> int:
    return _RANK.index(kind) if kind in _RANK else -1


def _text_literal(text: str, tp: Any, path: str) -> Any:
    for item in get_args(tp):
        if text == (item.name if isinstance(item, Enum) else str(item)):
            return item
    for item in get_args(tp):
        if isinstance(item, bool) and _is_bool(text, item):
            return item
        if item is None and text.strip().lower() in ("", "null"):
            return item
    refuse_value(path, text, _one_of([str(item) for item in get_args(tp)], text))


def _is_bool(text: str, value: bool) -> bool:
    try:
        return parse_bool(text) is value
    except SpecError:
        return False


def _text_enum(text: str, tp: Any, path: str) -> Any:
    if text in tp.__members__:
        return tp.__members__[text]
    for item in tp:
        if text == str(item.value):
            return item
    refuse_value(path, text, _one_of(list(tp.__members__), text))


def _one_of(allowed: list[str], text: str) -> str:
    hint = nearest(text, allowed)
    listed = f"must be one of: {', '.join(allowed)}"
    return f"{listed}; {hint}" if hint.startswith("did you mean") else listed


def _literal(text: str, opening: str) -> Any:
    """Return the JSON value that a text spells, or None if it does not start like one or is not valid."""
    if not text.lstrip().startswith(opening):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text_list(text: str, tp: Any, path: str) -> list[Any]:
    spelled = _literal(text, "[")
    if spelled is not None:
        return _value_list(spelled, tp, path)
    item = (get_args(tp) or (str,))[0]
    return [decode_text(part, item, f"{path}[{index}]") for index, part in enumerate(split_list(text))]


def _text_tuple(text: str, tp: Any, path: str) -> tuple[Any, ...]:
    spelled = _literal(text, "[")
    parts = split_list(text) if spelled is None else spelled
    decode = decode_text if spelled is None else decode_value
    return tuple(decode(part, item, f"{path}[{i}]") for i, (part, item) in enumerate(_paired(parts, tp, path, text)))


def _paired(parts: Sequence[Any], tp: Any, path: str, shown: object) -> list[tuple[Any, Any]]:
    """Return each part with its type; a tuple of a fixed length must have it."""
    args = get_args(tp) or (str, ...)
    if args[-1] is ...:
        return [(part, args[0]) for part in parts]
    if len(parts) != len(args):
        refuse_value(path, shown, f"must have {len(args)} elements, has {len(parts)}")
    return list(zip(parts, args, strict=True))


def _text_dict(text: str, tp: Any, path: str) -> dict[Any, Any]:
    key_type, value_type = get_args(tp) or (str, str)
    spelled = _literal(text, "{")
    if spelled is not None:
        return _value_dict(spelled, tp, path)
    return {
        decode_text(key, key_type, f"{path} key"): decode_text(value, value_type, f"{path}[{key!r}]")
        for key, value in _pairs(text, path).items()
    }


def _pairs(text: str, path: str) -> dict[str, str]:
    try:
        return split_pairs(text)
    except SpecError:
        refuse_value(path, text, "must be of the form key=value[,key=value…], or a JSON object")


def _text_dataclass(text: str, tp: Any, path: str) -> Any:
    spelled = _literal(text, "{")
    return _value_dataclass(_pairs(text, path) if spelled is None else spelled, tp, path)


def _text_path(text: str, tp: Any, path: str) -> Any:
    if tp is os.PathLike:
        import pathlib

        return pathlib.Path(text)
    return tp(text)


_FROM_TEXT: Final[dict[str, Callable[[str, Any, str], Any]]] = {
    "str": lambda text, tp, path: text,
    "any": lambda text, tp, path: text,
    "int": _text_number,
    "float": _text_number,
    "bool": _text_bool,
    "none": _text_none,
    "union": _text_union,
    "literal": _text_literal,
    "enum": _text_enum,
    "list": _text_list,
    "tuple": _text_tuple,
    "dict": _text_dict,
    "dataclass": _text_dataclass,
    "path": _text_path,
}


# --------------------------------------------------------------------------------------------------------------- values


def decode_value(value: Any, tp: Any, path: str) -> Any:
    """Return what a JSON value, or one given by a program, means for the type ``tp``.

    Args:
        value: a JSON value, or one that is of the type already; a str for another type is read by `decode_text`.
        tp: an annotation that a component may have.
        path: where it was given, for the message (``num_replicas``).

    Raises:
        ComponentArgumentError: for a value of another type.
    """
    tp = plain_type(tp)
    kind = kind_of(tp)
    if kind == "any":
        return value
    if isinstance(value, str) and not isinstance(value, Enum) and kind not in ("str", "union"):
        return decode_text(value, tp, path)
    return _FROM_VALUE[kind](value, tp, path)


def _value_str(value: Any, tp: Any, path: str) -> str:
    if not isinstance(value, str):
        refuse_value(path, value, "must be a str")
    return value


def _value_bool(value: Any, tp: Any, path: str) -> bool:
    if not isinstance(value, bool):
        refuse_value(path, value, "must be true or false")
    return value


def _value_int(value: Any, tp: Any, path: str) -> int:
    # JSON that went through other tools has 3.0 for 3
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        refuse_value(path, value, "must be an int")
    return value


def _value_float(value: Any, tp: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse_value(path, value, "must be a number")
    try:
        return float(value)
    except OverflowError:
        refuse_value(path, value, "must be a number that a float can hold")


def _value_none(value: Any, tp: Any, path: str) -> None:
    if value is not None:
        refuse_value(path, value, "must be null")


def _value_union(value: Any, tp: Any, path: str) -> Any:
    members = [plain_type(item) for item in get_args(tp)]
    if isinstance(value, str) and not isinstance(value, Enum) and str not in members:
        return _text_union(value, tp, path)
    if value is None and any(kind_of(item) == "none" for item in members):
        return None
    members = sorted((item for item in members if kind_of(item) != "none"), key=lambda item: _rank(kind_of(item)))
    if isinstance(value, str) and not isinstance(value, Enum):
        # a str stays one, unless it names a choice: "5" for int | str is the str
        members = [item for item in members if kind_of(item) in ("literal", "enum", "str")]
    else:
        members.sort(key=lambda item: type(value) is not item)
    for member in members:
        try:
            return decode_value(value, member, path)
        except ComponentArgumentError:
            if len(members) == 1:
                raise
    refuse_value(path, value, f"must be {type_name(tp)}")


def _value_literal(value: Any, tp: Any, path: str) -> Any:
    for item in get_args(tp):
        if type(item) is type(value) and item == value:
            return item
    refuse_value(path, value, _one_of([str(item) for item in get_args(tp)], str(value)))


def _value_enum(value: Any, tp: Any, path: str) -> Any:
    if isinstance(value, tp):
        return value
    for item in tp:
        if type(item.value) is type(value) and item.value == value:
            return item
    refuse_value(path, value, _one_of(list(tp.__members__), str(value)))


def _value_list(value: Any, tp: Any, path: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        refuse_value(path, value, "must be a list")
    item = (get_args(tp) or (str,))[0]
    return [decode_value(part, item, f"{path}[{index}]") for index, part in enumerate(value)]


def _value_tuple(value: Any, tp: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        refuse_value(path, value, "must be a list")
    return tuple(
        decode_value(part, item, f"{path}[{index}]")
        for index, (part, item) in enumerate(_paired(value, tp, path, value))
    )


def _value_dict(value: Any, tp: Any, path: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        refuse_value(path, value, "must be an object (a dict)")
    key_type, value_type = get_args(tp) or (str, str)
    return {
        decode_value(key, key_type, f"{path} key"): decode_value(item, value_type, f"{path}[{key!r}]")
        for key, item in value.items()
    }


def _value_dataclass(value: Any, tp: Any, path: str) -> Any:
    if isinstance(value, tp):
        return value
    if not isinstance(value, Mapping):
        refuse_value(path, value, f"must be an object with the fields of {tp.__name__}")
    known = {item.name: item for item in fields(tp) if item.init}
    for key in value:
        if key not in known:
            raise ComponentArgumentError(
                f"{path}: {tp.__name__} has no field {key!r}: {nearest(str(key), list(known))}"
            )
    for name, item in known.items():
        if name not in value and item.default is MISSING and item.default_factory is MISSING:
            raise ComponentArgumentError(f"{path}: the field {name!r} of {tp.__name__} is missing")
    hints = typing.get_type_hints(tp)
    values = {key: decode_value(item, hints[key], f"{path}.{key}") for key, item in value.items()}
    try:
        return tp(**values)
    except SpecError:
        raise
    except Exception as exc:
        raise ComponentArgumentError(f"{path}: {tp.__name__} refuses it: {type(exc).__name__}: {exc}") from exc


def _value_path(value: Any, tp: Any, path: str) -> Any:
    if not isinstance(value, os.PathLike):
        refuse_value(path, value, "must be a path (a str)")
    return value


_FROM_VALUE: Final[dict[str, Callable[[Any, Any, str], Any]]] = {
    "str": _value_str,
    "int": _value_int,
    "float": _value_float,
    "bool": _value_bool,
    "none": _value_none,
    "union": _value_union,
    "literal": _value_literal,
    "enum": _value_enum,
    "list": _value_list,
    "tuple": _value_tuple,
    "dict": _value_dict,
    "dataclass": _value_dataclass,
    "path": _value_path,
}
