"""Convert a text of the command line, or a JSON value, to the type of an annotation.

`decode_text` converts a text of the command line, and `decode_value` a value of JSON or a program.
`decode_value` passes a str for another type to `decode_text`, so that both accept the same texts.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Final, Literal, NoReturn, Union, get_args, get_origin

from transload.components.errors import ComponentArgumentError
from transload.errors import SpecError
from transload.specs.checks import closest, nearest, shorten
from transload.specs.secrets import MASK, looks_secret
from transload.specs.text import parse_bool, parse_number, split_list, split_pairs

SUPPORTED: Final = (
    "str, int, float, bool, list, tuple, dict, Optional, Union, Literal, Enum, Path, a dataclass"
)
_KINDS: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    ("any", (Any, object)),
    ("none", (None, type(None))),
    ("union", (Union, types.UnionType)),
    ("literal", (Literal,)),
    ("list", (list, Sequence, MutableSequence, Iterable)),
    ("dict", (dict, Mapping, MutableMapping)),
    ("tuple", (tuple,)),
)
_KEYS: Final = ("str", "int", "float", "bool", "enum", "literal", "any")
# a text that fits several members of a union gets the first of these types
_RANK: Final = (
    "literal",
    "enum",
    "int",
    "float",
    "bool",
    "list",
    "tuple",
    "dict",
    "dataclass",
    "path",
    "any",
    "str",
)
_CONTAINERS: Final = {"list", "tuple", "dict", "dataclass"}


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
    """Return the kind of a type, such as ``int`` or ``union``, or an empty text if unsupported."""
    tp = plain_type(tp)
    if tp in (str, int, float, bool):
        return str(tp.__name__)
    origin = get_origin(tp) or tp
    for kind, known in _KINDS:
        if origin in known:
            return kind
    if not isinstance(tp, type):
        return ""
    if issubclass(tp, Enum):
        return "enum"
    if issubclass(tp, os.PathLike):
        return "path"
    if is_dataclass(tp):
        return "dataclass"
    return ""


def is_flag(tp: Any) -> bool:
    """Tell whether an option of this type needs no value, as for bool and optional bool."""
    tp = plain_type(tp)
    if kind_of(tp) != "union":
        return tp is bool
    members = {plain_type(item) for item in get_args(tp)}
    return members - {None, type(None)} == {bool}


def type_name(tp: Any) -> str:
    """Return a type for display, such as ``int``, ``list[str]``, or ``a|b`` for a choice."""
    tp = plain_type(tp)
    kind = kind_of(tp)
    if kind == "literal":
        return "|".join(_choice_text(item) for item in get_args(tp))
    if kind == "enum":
        return "|".join(tp.__members__)
    if kind == "union":
        return " | ".join(dict.fromkeys(type_name(item) for item in get_args(tp)))
    if kind == "none":
        return "None"
    if kind == "any":
        return kind
    if kind in ("list", "dict", "tuple"):
        names = ["..." if item is ... else type_name(item) for item in get_args(tp)]
        return f"{kind}[{', '.join(names)}]" if names else kind
    return getattr(tp, "__name__", str(tp))


def _choice_text(choice: object) -> str:
    """Return the spelling of a Literal's choice on the command line."""
    if isinstance(choice, Enum):
        return choice.name
    return str(choice)


def type_problem(tp: Any, seen: tuple[Any, ...] = ()) -> str | None:
    """Return why a type is not supported for arguments, or None if it is."""
    tp = plain_type(tp)
    kind = kind_of(tp)
    if kind == "" or (kind in ("any", "none") and not seen):
        return f"type {type_name(tp)!r} is not supported; use one of: {SUPPORTED}"
    if tp in seen:
        return None
    parts: list[Any] = []
    if kind != "literal":
        parts = [item for item in get_args(tp) if item is not ...]
    if kind == "dict" and parts and kind_of(parts[0]) not in _KEYS:
        allowed = "the keys of a dict must be str, int, float, bool or an Enum"
        return f"type {type_name(tp)!r} is not supported: {allowed}"
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


def refuse_value(path: str, value: object, allowed: str) -> NoReturn:
    """Raise a ComponentArgumentError with the path, the value and what is allowed.

    A value that looks secret is masked.
    """
    name = path.rpartition(" ")[2].lstrip("-")
    has_names = isinstance(value, Mapping) or (isinstance(value, str) and "=" in value)
    is_secret = looks_secret(name) or (has_names and looks_secret(str(value)))
    shown = MASK if is_secret else shorten(value)
    raise ComponentArgumentError(f"{path}={shown}: {allowed}")


def decode_text(text: str, tp: Any, path: str) -> Any:
    """Convert a text of the command line to the type ``tp``.

    Args:
        text: the text.
        tp: the type.
        path: the argument in messages, such as ``--num_replicas``.

    Raises:
        ComponentArgumentError: if the text is not a value of the type.
    """
    return _decode(text, tp, path, True)


def decode_value(value: Any, tp: Any, path: str) -> Any:
    """Convert a value of JSON or a program to the type ``tp``.

    A value of the right type is returned unchanged. A str for another type is converted by
    `decode_text`.

    Args:
        value: the value.
        tp: the type.
        path: names the argument in messages.

    Raises:
        ComponentArgumentError: if the value has another type.
    """
    tp = plain_type(tp)
    return _decode(value, tp, path, _is_text(value) and kind_of(tp) not in ("str", "union", "any"))


def decode_argument(value: Any, tp: Any, path: str) -> Any:
    """Convert an argument to the type ``tp``, a str by `decode_text`, else by `decode_value`.

    Raises:
        ComponentArgumentError: if the value has another type.
    """
    if isinstance(value, str):
        return decode_text(value, tp, path)
    return decode_value(value, tp, path)


def _element_decoder(typed: bool) -> Callable[[Any, Any, str], Any]:
    """Return the decoder for the elements of a container."""
    if typed:
        return decode_text
    return decode_value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, Enum)


def _decode(value: Any, tp: Any, path: str, typed: bool) -> Any:
    tp = plain_type(tp)
    return _READERS[kind_of(tp)](value, tp, path, typed)


def _str(value: Any, tp: Any, path: str, typed: bool) -> str:
    if not isinstance(value, str):
        refuse_value(path, value, "must be a str")
    return value


def _bool(value: Any, tp: Any, path: str, typed: bool) -> bool:
    if typed:
        try:
            return parse_bool(value)
        except SpecError:
            refuse_value(path, value, "must be true or false (also yes/no, on/off, 1/0)")
    if not isinstance(value, bool):
        refuse_value(path, value, "must be true or false")
    return value


def _number(value: Any, tp: Any, path: str, typed: bool) -> Any:
    allowed = "must be an int" if tp is int else "must be a number"
    if not typed:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            refuse_value(path, value, allowed)
        # JSON from other tools may have 3.0 for 3
        if tp is int and isinstance(value, float) and not value.is_integer():
            refuse_value(path, value, allowed)
    try:
        return parse_number(value, tp) if typed else tp(value)
    except ValueError:
        refuse_value(path, value, allowed)
    except OverflowError:
        refuse_value(path, value, "must be a number that a float can hold")


def _none(value: Any, tp: Any, path: str, typed: bool) -> None:
    if typed and not _says_none(value):
        refuse_value(path, value, "must be none")
    if not typed and value is not None:
        refuse_value(path, value, "must be null")


def _says_none(text: str) -> bool:
    return text.strip().lower() in ("", "none", "null")


def _rank(member: Any) -> int:
    """Return the rank of a union's member in the order in which texts are tried."""
    kind = kind_of(member)
    return _RANK.index(kind) if kind in _RANK else -1


def _union(value: Any, tp: Any, path: str, typed: bool) -> Any:
    types_given = [plain_type(item) for item in get_args(tp)]
    members = [item for item in types_given if kind_of(item) != "none"]
    optional = len(members) < len(types_given)
    members.sort(key=_rank)
    if typed or (_is_text(value) and str not in members):
        return _union_of_text(value, tp, path, members, optional)
    if optional and value is None:
        return None
    if _is_text(value):
        # a str stays a str unless it names a choice, so "5" for int | str is the str
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


def _union_of_text(text: str, tp: Any, path: str, members: list[Any], optional: bool) -> Any:
    """Convert a text to the first member of a union that it fits."""
    is_blank = not text.strip()
    if optional and is_blank and str not in members:
        return None
    may_be_none = optional and not is_blank and _says_none(text)
    if str in members and not text.lstrip().startswith(("[", "{")):
        members = [item for item in members if kind_of(item) not in _CONTAINERS]
    for member in members:
        try:
            return decode_text(text, member, path)
        except ComponentArgumentError:
            if len(members) == 1 and not may_be_none:
                raise
    if may_be_none:
        return None
    refuse_value(path, text, f"must be {type_name(tp)}")


def _literal(value: Any, tp: Any, path: str, typed: bool) -> Any:
    choices = get_args(tp)
    for choice in choices:
        if typed and value == _choice_text(choice):
            return choice
        if not typed and _same(choice, value):
            return choice
    if typed:
        # false, no, off and 0 are all the choice False
        for choice in choices:
            if _spells(value, choice):
                return choice
    refuse_value(path, value, _one_of([str(choice) for choice in choices], str(value)))


def _spells(text: str, choice: object) -> bool:
    """Tell whether a text is another spelling of a choice that is a bool or None."""
    if choice is None:
        return text.strip().lower() in ("", "null")
    if not isinstance(choice, bool):
        return False
    try:
        return parse_bool(text) is choice
    except SpecError:
        return False


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _enum(value: Any, tp: Any, path: str, typed: bool) -> Any:
    if isinstance(value, tp):
        return value
    if typed and value in tp.__members__:
        return tp.__members__[value]
    for item in tp:
        if typed and value == str(item.value):
            return item
        if not typed and _same(item.value, value):
            return item
    refuse_value(path, value, _one_of(list(tp.__members__), str(value)))


def _one_of(allowed: list[str], text: str) -> str:
    listed = f"must be one of: {', '.join(allowed)}"
    close = closest(text, allowed)
    if close is None:
        return listed
    return f"{listed}; did you mean {close!r}?"


def _spelled(text: str, opening: str) -> Any:
    """Parse a text as JSON, or return None if it does not start like that or is not valid."""
    if not text.lstrip().startswith(opening):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _parts(value: Any, path: str, typed: bool) -> tuple[Sequence[Any], bool]:
    """Return the elements of a list, and whether they are texts of the command line."""
    spelled = _spelled(value, "[") if typed else value
    if spelled is None and typed:
        return split_list(value), True
    if not isinstance(spelled, (list, tuple)):
        refuse_value(path, value, "must be a list")
    return spelled, False


def _list(value: Any, tp: Any, path: str, typed: bool) -> list[Any]:
    parts, typed = _parts(value, path, typed)
    decode = _element_decoder(typed)
    (item,) = get_args(tp) or (str,)
    return [decode(part, item, f"{path}[{index}]") for index, part in enumerate(parts)]


def _tuple(value: Any, tp: Any, path: str, typed: bool) -> tuple[Any, ...]:
    parts, typed = _parts(value, path, typed)
    decode = _element_decoder(typed)
    items = get_args(tp) or (str, ...)
    if items[-1] is ...:
        items = (items[0],) * len(parts)
    if len(parts) != len(items):
        refuse_value(path, value, f"must have {len(items)} elements, has {len(parts)}")
    pairs = enumerate(zip(parts, items, strict=True))
    return tuple(decode(part, item, f"{path}[{index}]") for index, (part, item) in pairs)


def _pairs(value: Any, path: str, typed: bool, allowed: str) -> tuple[Mapping[Any, Any], bool]:
    """Return the items of a dict, and whether they are texts of the command line."""
    spelled = _spelled(value, "{") if typed else value
    if spelled is None and typed:
        try:
            return split_pairs(value), True
        except SpecError:
            refuse_value(
                path, value, "must be of the form key=value[,key=value…], or a JSON object"
            )
    if not isinstance(spelled, Mapping):
        refuse_value(path, value, allowed)
    return spelled, False


def _dict(value: Any, tp: Any, path: str, typed: bool) -> dict[Any, Any]:
    pairs, typed = _pairs(value, path, typed, "must be an object (a dict)")
    decode = _element_decoder(typed)
    key_type, value_type = get_args(tp) or (str, str)
    found = {}
    for key, item in pairs.items():
        decoded_key = decode(key, key_type, f"{path} key")
        found[decoded_key] = decode(item, value_type, f"{path}[{key!r}]")
    return found


def _dataclass(value: Any, tp: Any, path: str, typed: bool) -> Any:
    if isinstance(value, tp):
        return value
    given, typed = _pairs(value, path, typed, f"must be an object with the fields of {tp.__name__}")
    known = {item.name: item for item in fields(tp) if item.init}
    for key in given:
        if key not in known:
            hint = nearest(str(key), list(known))
            raise ComponentArgumentError(f"{path}: {tp.__name__} has no field {key!r}: {hint}")
    for name, item in known.items():
        if name not in given and item.default is MISSING and item.default_factory is MISSING:
            raise ComponentArgumentError(f"{path}: the field {name!r} of {tp.__name__} is missing")
    hints = typing.get_type_hints(tp)
    decode = _element_decoder(typed)
    values = {key: decode(item, hints[key], f"{path}.{key}") for key, item in given.items()}
    try:
        return tp(**values)
    except SpecError:
        raise
    except Exception as exc:
        raise ComponentArgumentError(
            f"{path}: {tp.__name__} refuses it: {type(exc).__name__}: {exc}"
        ) from exc


def _path(value: Any, tp: Any, path: str, typed: bool) -> Any:
    if not typed:
        if not isinstance(value, os.PathLike):
            refuse_value(path, value, "must be a path (a str)")
        return value
    if tp is os.PathLike:
        import pathlib

        return pathlib.Path(value)
    return tp(value)


_READERS: Final[dict[str, Callable[[Any, Any, str, bool], Any]]] = {
    "str": _str,
    "any": lambda value, tp, path, typed: value,
    "int": _number,
    "float": _number,
    "bool": _bool,
    "none": _none,
    "union": _union,
    "literal": _literal,
    "enum": _enum,
    "list": _list,
    "tuple": _tuple,
    "dict": _dict,
    "dataclass": _dataclass,
    "path": _path,
}
