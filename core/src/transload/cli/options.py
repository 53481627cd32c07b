"""Options and arguments that several commands take, with their completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from transload.errors import SpecError, TransloadError
from transload.specs.checks import EMPTY, LARGEST_INT, shorten
from transload.specs.text import parse_duration, parse_number

__all__ = ["RealNumber", "WholeNumber", "complete_handles", "scheduler_option"]

F = TypeVar("F", bound=Callable[..., Any])


def _completing(
    words: Callable[[str], Iterable[tuple[str, str]]],
) -> Callable[..., list[CompletionItem]]:
    """Return a completion of (word, help), which is empty if it fails."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            found = list(words(incomplete))
        except TransloadError:
            return []
        return [
            CompletionItem(text, help=about) for text, about in found if text.startswith(incomplete)
        ]

    return complete


def _handles(incomplete: str) -> list[tuple[str, str]]:
    """Return job ids of the default scheduler, or handles once ``://`` is typed."""
    from transload.cli.session import open_runner

    scheduler, typed, _ = incomplete.partition("://")
    with open_runner() as runner:
        if typed:
            return [(row.app_handle, row.state.name) for row in runner.list(scheduler)]
        return [(row.app_id, row.state.name) for row in runner.list()]


def _schedulers(incomplete: str) -> list[tuple[str, str]]:
    from transload.cli.session import open_runner

    with open_runner() as runner:
        return [(name, "") for name in runner.scheduler_backends()]


def _components(incomplete: str) -> list[tuple[str, str]]:
    from transload.components import get_components

    return [(name, found.description) for name, found in sorted(get_components().items())]


complete_handles = _completing(_handles)
"""Completes handles of jobs, for `shell_complete` of a command's argument or option."""
_complete_names = _completing(_components)


def complete_components(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete names of components, else files."""
    return _complete_names(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]


def handle_argument(
    *, nargs: int | None = None, required: bool | None = None, metavar: str = "HANDLE"
) -> Callable[[F], F]:
    """Add the argument HANDLE, a full handle or a job id of the default scheduler.

    Args:
        nargs: as of click. For -1 there may be several. For None further words are refused by name.
        required: as of click.
        metavar: its name in the help.
    """
    callback = None
    if nargs is None:
        nargs = -1
        required = True
        callback = _only_one
    return click.argument(
        "handle",
        shell_complete=complete_handles,
        nargs=nargs,
        required=required,
        metavar=metavar,
        callback=callback,
    )


def _only_one(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str:
    """Return the only handle, and refuse further words, such as a pasted line of `list`."""
    if len(value) > 1:
        text = f"takes one HANDLE, {value[0]!r}, and no more: {' '.join(value[1:])!r}"
        raise click.UsageError(
            f"{text} (of a line of `transload list`, give the first column)", ctx
        )
    return value[0]


def scheduler_option(text: str) -> Callable[[F], F]:
    """Add ``-s/--scheduler``."""
    return click.option(
        "-s", "--scheduler", metavar="NAME", shell_complete=_completing(_schedulers), help=text
    )


def json_option(function: F) -> F:
    """Add ``--json``."""
    text = "Write JSON to stdout, and nothing else (shapes: docs/reference/command-line.md)."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


class _GivenText(type(click.STRING)):  # type: ignore[misc]
    """A text that is not empty. This is the type of an option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what a variable that is not set makes of ``--option "$VARIABLE"``."""
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail(f"{text!r}: {EMPTY}", param, ctx)
        return text


GIVEN_TEXT: Final = _GivenText()
"""The type of options that take a text."""


class WholeNumber(click.IntRange):
    """A whole number, in plain digits. This is the type of an option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what only Python takes for a number, such as ``1_000``."""
        return super().convert(_plain_number(value, int), param, ctx)


class RealNumber(click.FloatRange):
    """A number, in plain digits. This is the type of an option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what only Python takes for a number, such as ``1_000``."""
        return super().convert(_plain_number(value, float), param, ctx)


def _plain_number(value: Any, kind: type[int] | type[float]) -> Any:
    if not isinstance(value, str):
        return value
    try:
        number = parse_number(value, kind)
    except ValueError as exc:
        word = "a whole number" if kind is int else "a number"
        raise click.BadParameter(f"{shorten(value)}: must be {word}, in plain digits") from exc
    if kind is int and abs(number) > LARGEST_INT:
        raise click.BadParameter(f"{shorten(value)}: must be {LARGEST_INT} or less")
    return number


def duration(value: str | float, *, needs_unit: bool = False) -> float:
    """Return the seconds of ``90``, ``10m`` or ``1h30m``. This is the type of an option."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return parse_duration(value, needs_unit=needs_unit)
    except SpecError as exc:
        raise click.BadParameter(str(exc).removeprefix("duration=")) from exc


def long_duration(value: str | float) -> float:
    """Return the seconds of ``10m``, ``1h30m`` or ``2:00:00``, which must have a unit.

    This is the type of an option for which a number of seconds would be a mistake.
    """
    return duration(value, needs_unit=True)
