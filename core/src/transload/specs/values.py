"""Read a value as a type says: a text that a person typed, or a value of JSON or of a program.

Arguments of components and settings of jobs are read here. A type that is ``Annotated`` with a
`Rule` is read by that rule, such as `Seconds`, `Size` and `Count`.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NoReturn, Union, get_args, get_origin

from transload.errors import SpecError
from transload.specs.checks import (
    check_int,
    check_number,
    check_seconds,
    closest,
    nearest,
    refuse,
    shorten,
)
from transload.specs.secrets import MASK, looks_secret
from transload.specs.text import (
    parse_bool,
    parse_duration,
    parse_number,
    parse_size,
    refuse_without_unit,
    split_list,
    split_pairs,
)

__all__ = ["SUPPORTED", "Amount", "Count", "Delay", "Rule", "Seconds", "Size", "at_least", "read"]

SUPPORTED: Final = (
    "str, int, float, bool, list, tuple, dict, Optional, Union, Literal, Enum, Path, a dataclass"
)
_KINDS: Final[dict[Any, str]] = {
    Any: "any",
    object: "any",
    None: "none",
    type(None): "none",
    Union: "union",
    types.UnionType: "union",
    Literal: "literal",
    tuple: "tuple",
    **dict.fromkeys((list, Sequence, MutableSequence, Iterable), "list"),
    **dict.fromkeys((dict, Mapping, MutableMapping), "dict"),
    **{kind: kind.__name__ for kind in (str, int, float, bool)},
}
_KEYS: Final = ("str", "int", "float", "bool", "enum", "literal", "any")
# a text that fits several members of a union gets the first of these types
_ORDER: Final = (
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


@dataclass(frozen=True)
class Rule:
    """How a type is read that is ``Annotated`` with it.

    Args:
        name: the type for display, such as ``duration``.
        read: returns the value for what was given, and refuses it by the name for messages.
    """

    name: str
    read: Callable[[Any, str], Any]


def plain_type(tp: Any) -> Any:
    """Return the type behind a NewType, a ``type`` alias, or an Annotated that has no `Rule`."""
    while True:
        if hasattr(tp, "__supertype__"):
            tp = tp.__supertype__
        elif hasattr(tp, "__metadata__") and rule_of(tp) is None:
            tp = tp.__origin__
        elif type(tp).__name__ == "TypeAliasType":
            tp = tp.__value__
        else:
            return tp


def rule_of(tp: Any) -> Rule | None:
    """Return the rule of an Annotated type, or None if it has none."""
    rules = (each for each in getattr(tp, "__metadata__", ()) if isinstance(each, Rule))
    return next(rules, None)


def kind_of(tp: Any) -> str:
    """Return the kind of a type, such as ``int`` or ``union``, or an empty text if unsupported."""
    tp = plain_type(tp)
    if rule_of(tp) is not None:
        return "rule"
    found = _KINDS.get(get_origin(tp) or tp)
    if found is not None or not isinstance(tp, type):
        return found or ""
    if issubclass(tp, Enum):
        return "enum"
    if issubclass(tp, os.PathLike):
        return "path"
    return "dataclass" if is_dataclass(tp) else ""


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
    rule = rule_of(tp)
    if rule is not None:
        return rule.name
    kind = kind_of(tp)
    if kind == "literal":
        return "|".join(map(_choice_text, get_args(tp)))
    if kind == "enum":
        return "|".join(tp.__members__)
    if kind == "union":
        return " | ".join(dict.fromkeys(map(type_name, get_args(tp))))
    if kind == "none":
        return "None"
    if kind == "any":
        return kind
    if kind in ("list", "dict", "tuple"):
        names = ["..." if item is ... else type_name(item) for item in get_args(tp)]
        return f"{kind}[{', '.join(names)}]" if names else kind
    return getattr(tp, "__name__", str(tp))


def type_problem(tp: Any, seen: tuple[Any, ...] = ()) -> str | None:
    """Return why a type is not supported for arguments, or None if it is."""
    tp = plain_type(tp)
    kind = kind_of(tp)
    if kind == "" or (kind in ("any", "none") and not seen):
        return f"type {type_name(tp)!r} is not supported; use one of: {SUPPORTED}"
    if tp in seen or kind in ("literal", "rule"):
        return None
    parts = [item for item in get_args(tp) if item is not ...]
    if kind == "dict" and parts and kind_of(parts[0]) not in _KEYS:
        allowed = "the keys of a dict must be str, int, float, bool or an Enum"
        return f"type {type_name(tp)!r} is not supported: {allowed}"
    if kind == "dataclass":
        try:
            parts = [hint for _, hint in fields_of(tp).values()]
        except Exception as exc:
            return f"the fields of dataclass {tp.__name__} cannot be read: {exc}"
    problems = (type_problem(part, (*seen, tp)) for part in parts)
    return next((each for each in problems if each is not None), None)


@lru_cache(maxsize=None)
def fields_of(cls: Any) -> dict[str, tuple[Field[Any], Any]]:
    """Return name → field and type, of what the constructor of a dataclass takes."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {item.name: (item, hints[item.name]) for item in fields(cls) if item.init}


def read(value: Any, tp: Any, where: str, *, typed: bool = False) -> Any:
    """Return a value of a type.

    A text for a type other than str is read as if it was typed, even if it is not.

    Args:
        value: a value of JSON or of a program, which may be of the type itself.
        tp: the type.
        where: names the value in messages, such as ``--num_replicas`` or ``roles[0].args``.
        typed: it is a text of a command line, where 5 for ``int | str`` is the number.

    Raises:
        SpecError: if it is no value of the type. The message has its name, the value, unless that
            looks secret, and what is allowed.
    """
    return _Reader(where, typed).read(value, tp)


@dataclass(frozen=True)
class _Reader:
    """Reads one value. `_int` and the like read a type of that kind."""

    where: str
    typed: bool

    def at(self, place: str, typed: bool) -> _Reader:
        """Return the reader of a part of this value."""
        return _Reader(f"{self.where}{place}", typed)

    def refuse(self, value: object, allowed: str) -> NoReturn:
        """Raise SpecError with the place, the value and what is allowed."""
        name = self.where.rpartition(" ")[2].lstrip("-")
        has_names = isinstance(value, Mapping) or (isinstance(value, str) and "=" in value)
        is_secret = looks_secret(name) or (has_names and looks_secret(str(value)))
        shown = MASK if is_secret else shorten(value)
        raise SpecError(f"{self.where}={shown}: {allowed}")

    def read(self, value: Any, tp: Any) -> Any:
        tp = plain_type(tp)
        kind = kind_of(tp)
        reader = self
        if _is_text(value) and kind not in ("str", "union", "any"):
            reader = self.at("", typed=True)
        return getattr(reader, f"_{kind}")(value, tp)

    def _rule(self, value: Any, tp: Any) -> Any:
        rule = rule_of(tp)
        assert rule is not None
        return rule.read(value, self.where)

    def _any(self, value: Any, tp: Any) -> Any:
        return value

    def _str(self, value: Any, tp: Any) -> str:
        if not isinstance(value, str):
            self.refuse(value, "must be a str")
        return value

    def _none(self, value: Any, tp: Any) -> None:
        if self.typed and not _says_none(value):
            self.refuse(value, "must be none")
        if not self.typed and value is not None:
            self.refuse(value, "must be null")

    def _bool(self, value: Any, tp: Any) -> bool:
        if self.typed:
            try:
                return parse_bool(value)
            except SpecError:
                self.refuse(value, "must be true or false (also yes/no, on/off, 1/0)")
        if not isinstance(value, bool):
            self.refuse(value, "must be true or false")
        return value

    def _int(self, value: Any, tp: Any) -> Any:
        allowed = "must be an int" if tp is int else "must be a number"
        if not self.typed:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                self.refuse(value, allowed)
            # JSON from other tools may have 3.0 for 3
            if tp is int and isinstance(value, float) and not value.is_integer():
                self.refuse(value, allowed)
        try:
            return parse_number(value, tp) if self.typed else tp(value)
        except ValueError:
            self.refuse(value, allowed)
        except OverflowError:
            self.refuse(value, "must be a number that a float can hold")

    _float = _int

    def _union(self, value: Any, tp: Any) -> Any:
        types_given = [plain_type(item) for item in get_args(tp)]
        members = [item for item in types_given if kind_of(item) != "none"]
        optional = len(members) < len(types_given)
        members.sort(key=_rank)
        if self.typed or (_is_text(value) and str not in members):
            return self.at("", typed=True)._union_of_text(value, tp, members, optional)
        if optional and value is None:
            return None
        if _is_text(value):
            # a str stays a str unless it names a choice, so "5" for int | str is the str
            members = [item for item in members if kind_of(item) in ("literal", "enum", "str")]
        else:
            members.sort(key=lambda item: type(value) is not item)
        return self._first_of(members, value, tp)

    def _union_of_text(self, text: str, tp: Any, members: list[Any], optional: bool) -> Any:
        """Return the value of the first member of a union that a typed text fits."""
        is_blank = not text.strip()
        if optional and is_blank and str not in members:
            return None
        if str in members and not text.lstrip().startswith(("[", "{")):
            members = [item for item in members if kind_of(item) not in _CONTAINERS]
        if not optional or is_blank or not _says_none(text):
            return self._first_of(members, text, tp)
        for member in members:
            try:
                return self.read(text, member)
            except SpecError:
                continue
        return None

    def _first_of(self, members: list[Any], value: Any, tp: Any) -> Any:
        """Return the value of the first member of a union that it fits."""
        for member in members:
            try:
                return self.read(value, member)
            except SpecError:
                if len(members) == 1:
                    raise
        return self.refuse(value, f"must be {type_name(tp)}")

    def _literal(self, value: Any, tp: Any) -> Any:
        choices = get_args(tp)
        # false, no, off and 0 are all the choice False
        ways = (_is_choice, _spells) if self.typed else (_same,)
        for means in ways:
            for choice in choices:
                if means(choice, value):
                    return choice
        return self.refuse(value, _one_of([str(choice) for choice in choices], str(value)))

    def _enum(self, value: Any, tp: Any) -> Any:
        if isinstance(value, tp):
            return value
        if self.typed and value in tp.__members__:
            return tp.__members__[value]
        for item in tp:
            if self.typed and value == str(item.value):
                return item
            if not self.typed and _same(item.value, value):
                return item
        return self.refuse(value, _one_of(list(tp.__members__), str(value)))

    def _elements(self, value: Any) -> tuple[Sequence[Any], bool]:
        """Return the elements of a list, and whether they are texts that were typed."""
        spelled = _spelled(value, "[") if self.typed else value
        if spelled is None and self.typed:
            if value.strip().startswith("[") and value.strip().endswith("]"):
                self.refuse(value, 'must be a list: a,b or ["a", "b"]')
            return split_list(value), True
        if not isinstance(spelled, (list, tuple)):
            self.refuse(value, "must be a list")
        return spelled, False

    def _list(self, value: Any, tp: Any) -> list[Any]:
        elements, typed = self._elements(value)
        (item,) = get_args(tp) or (str,)
        return [
            self.at(f"[{index}]", typed).read(each, item) for index, each in enumerate(elements)
        ]

    def _tuple(self, value: Any, tp: Any) -> tuple[Any, ...]:
        elements, typed = self._elements(value)
        items = get_args(tp) or (str, ...)
        if items[-1] is ...:
            items = (items[0],) * len(elements)
        if len(elements) != len(items):
            self.refuse(value, f"must have {len(items)} elements, has {len(elements)}")
        pairs = enumerate(zip(elements, items, strict=True))
        return tuple(self.at(f"[{index}]", typed).read(each, item) for index, (each, item) in pairs)

    def _pairs(self, value: Any, allowed: str) -> tuple[Mapping[Any, Any], bool]:
        """Return the items of a dict, and whether they are texts that were typed."""
        spelled = _spelled(value, "{") if self.typed else value
        if spelled is None and self.typed:
            try:
                return split_pairs(value), True
            except SpecError:
                self.refuse(value, "must be of the form key=value[,key=value…], or a JSON object")
        if not isinstance(spelled, Mapping):
            self.refuse(value, allowed)
        return spelled, False

    def _dict(self, value: Any, tp: Any) -> dict[Any, Any]:
        pairs, typed = self._pairs(value, "must be an object (a dict)")
        key_type, value_type = get_args(tp) or (str, str)
        found = {}
        for key, item in pairs.items():
            name = self.at(" key", typed).read(key, key_type)
            found[name] = self.at(f"[{key!r}]", typed).read(item, value_type)
        return found

    def _dataclass(self, value: Any, tp: Any) -> Any:
        if isinstance(value, tp):
            return value
        name = tp.__name__
        pairs, typed = self._pairs(value, f"must be an object with the fields of {name}")
        known = fields_of(tp)
        for key in pairs:
            if key not in known:
                hint = nearest(str(key), list(known))
                raise SpecError(f"{self.where}: {name} has no field {key!r}: {hint}")
        for key, (item, _) in known.items():
            is_open = item.default is MISSING and item.default_factory is MISSING
            if is_open and key not in pairs:
                raise SpecError(f"{self.where}: the field {key!r} of {name} is missing")
        values = {
            key: self.at(f".{key}", typed).read(item, known[key][1]) for key, item in pairs.items()
        }
        try:
            return tp(**values)
        except SpecError as exc:
            # the constructor names the class, but the user must know which object it was
            raise SpecError(str(exc).replace(f"{name}.", f"{self.where}.", 1)) from exc
        except Exception as exc:
            reason = f"{type(exc).__name__}: {exc}"
            raise SpecError(f"{self.where}: {name} refuses it: {reason}") from exc

    def _path(self, value: Any, tp: Any) -> Any:
        if not self.typed:
            if not isinstance(value, os.PathLike):
                self.refuse(value, "must be a path (a str)")
            return value
        if tp is os.PathLike:
            import pathlib

            return pathlib.Path(value)
        return tp(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, Enum)


def _says_none(text: str) -> bool:
    return text.strip().lower() in ("", "none", "null")


def _rank(member: Any) -> int:
    """Return the rank of a union's member in the order in which texts are tried."""
    kind = kind_of(member)
    return _ORDER.index(kind) if kind in _ORDER else -1


def _spelled(text: str, opening: str) -> Any:
    """Parse a text as JSON, or return None if it does not start like that or is not valid."""
    if not text.lstrip().startswith(opening):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _choice_text(choice: object) -> str:
    """Return the spelling of a Literal's choice on the command line."""
    return choice.name if isinstance(choice, Enum) else str(choice)


def _is_choice(choice: object, text: str) -> bool:
    return text == _choice_text(choice)


def _spells(choice: object, text: str) -> bool:
    """Tell whether a text is another spelling of a choice that is a bool or None."""
    if choice is None:
        return text.strip().lower() in ("", "null")
    if not isinstance(choice, bool):
        return False
    try:
        return parse_bool(text) is choice
    except SpecError:
        return False


def _one_of(allowed: list[str], text: str) -> str:
    listed = f"must be one of: {', '.join(allowed)}"
    close = closest(text, allowed)
    return listed if close is None else f"{listed}; did you mean {close!r}?"


def _delay(value: Any, where: str) -> float:
    """Return the seconds of a duration, which must have a unit, be it a number or a text."""
    if isinstance(value, str):
        return parse_duration(value, where, needs_unit=True)
    check_seconds(value, where, low=0)
    if value:
        refuse_without_unit(value, where)
    return 0.0


def _seconds(value: Any, where: str) -> float:
    if not isinstance(value, str):
        check_seconds(value, where, above=0)
    seconds = _delay(value, where)
    if seconds <= 0:
        refuse(where, value, "must be above 0")
    return seconds


def _size(value: Any, where: str) -> int:
    """Return the bytes of a text with a unit, or a number of bytes that is none of MiB."""
    if isinstance(value, str):
        return parse_size(value, where)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        refuse(where, value, "must be a size such as 500M or 10G")
    if 0 < value < 1 << 20:
        raise SpecError(
            f"{where}={value}: is a number of bytes: write it with a unit, such as '{value}M' or "
            f"'{value}G'"
        )
    return value


def _amount(value: Any, where: str) -> float:
    number: float = read(value, float, where)
    check_number(number, where, low=0)
    return number


def at_least(low: int) -> Rule:
    """Return the rule of a whole number that has a lower bound."""

    def read_number(value: Any, where: str) -> Any:
        if isinstance(value, str):
            try:
                value = parse_number(value, int)
            except ValueError:
                refuse(where, value, "must be a whole number, in plain digits")
        check_int(value, where, low)
        return value

    return Rule("int", read_number)


Seconds = Annotated[float, Rule("duration", _seconds)]
"""Seconds, above 0. Wherever they are written they have a unit (90s, 1h30m) or colons (2:00:00)."""

Delay = Annotated[float, Rule("duration", _delay)]
"""As `Seconds`, or 0."""

Size = Annotated[int, Rule("size", _size)]
"""Bytes, written with a unit (500M, 1.5GiB)."""

Amount = Annotated[float, Rule("float", _amount)]
"""A number of 0 or more."""

Count = Annotated[int, at_least(0)]
"""A whole number of 0 or more."""
