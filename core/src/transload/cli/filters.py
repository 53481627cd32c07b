"""Filters of lists: ``NAME OP VALUE``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

import click

from transload.cli.output import note

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_FOR_TEXTS: Final = ("=", "!=")
_NAME: Final = re.compile(r"\s*([^\s<>=!]+)\s*")
_OPERATOR: Final = re.compile(r"(<=|>=|!=|=|<|>)(?![<>=!])\s*")


def order(value: Any) -> tuple[int, float, str]:
    """Return a key by which values are sorted: numbers, then texts, then nothing."""
    if value is None:
        return 2, 0.0, ""
    number = _number(value)
    return (1, 0.0, str(value)) if number is None else (0, number, "")


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if number != number else number  # not a number has no place among them


class Filter(NamedTuple):
    """A condition on one value of a job."""

    name: str
    operator: str
    value: str

    def holds(self, found: Any) -> bool:
        """Tell whether a value is so. None, which is no value, is never so.

        Two numbers are compared as numbers, else both as texts. Texts have no order.
        """
        if found is None:
            return False
        compare = _OPERATORS[self.operator]
        mine, its = _number(self.value), _number(found)
        if mine is not None and its is not None:
            return compare(its, mine)
        return self.operator in _FOR_TEXTS and compare(str(found), self.value)


def read_filter(text: str) -> Filter:
    """Read ``loss<0.3``. This is the type of an option.

    Raises:
        click.BadParameter: if it cannot be read. A note shows the place.
    """
    name = _NAME.match(text)
    if name is None:
        _refuse(text, 0, "a name is missing")
    how = _OPERATOR.match(text, name.end())
    if how is None:
        _refuse(text, name.end(), f"OP must be one of {' '.join(_OPERATORS)}")
    wanted = text[how.end() :].strip()
    if not wanted:
        _refuse(text, how.end(), "a value is missing")
    if how[1] not in _FOR_TEXTS and _number(wanted) is None:
        _refuse(
            text, how.end(), f"with {how[1]}, VALUE must be a number, since texts have no order"
        )
    return Filter(name[1], how[1], wanted)


def _refuse(text: str, place: int, why: str) -> NoReturn:
    note(text)
    note(" " * place + "^")
    raise click.BadParameter(f"{text!r}: must be NAME OP VALUE: {why}")
