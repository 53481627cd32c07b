"""Filters of lists: ``NAME OP VALUE``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

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
        return self.operator in ("=", "!=") and compare(str(found), self.value)


class _Filter(click.ParamType):
    """The type of an option with a filter."""

    name = "NAME OP VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a filter, or show where it cannot be read."""
        if isinstance(value, Filter):
            return value
        name = _NAME.match(value)
        if name is None:
            self._refuse(value, 0, "a name is missing", param, ctx)
        how = _OPERATOR.match(value, name.end())
        if how is None:
            self._refuse(value, name.end(), f"OP must be one of {' '.join(_OPERATORS)}", param, ctx)
        wanted = value[how.end() :].strip()
        if not wanted:
            self._refuse(value, how.end(), "a value is missing", param, ctx)
        return Filter(name[1], how[1], wanted)

    def _refuse(
        self,
        text: str,
        place: int,
        why: str,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        note(text)
        note(" " * place + "^")
        self.fail(f"{text!r}: must be NAME OP VALUE: {why}", param, ctx)


FILTER: Final = _Filter()
"""The type of an option with a filter, such as ``loss<0.3``."""
