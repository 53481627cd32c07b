"""Options and arguments that several commands take, with their completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from transload.errors import TransloadError

F = TypeVar("F", bound=Callable[..., Any])


def complete_handles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete app ids of the default scheduler, or handles once ``://`` is typed."""
    from transload.cli._session import open_runner
    from transload.specs import parse_app_handle

    try:
        with open_runner() as runner:
            if "://" in incomplete:
                rows = runner.list(incomplete.partition("://")[0])
                found = [(row.app_handle, row.state.name) for row in rows]
            else:
                found = [(parse_app_handle(row.app_handle).app_id, row.state.name) for row in runner.list()]
    except TransloadError:
        return []
    return [CompletionItem(text, help=state) for text, state in found if text.startswith(incomplete)]


def complete_schedulers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of schedulers."""
    from transload.cli._session import open_runner

    try:
        with open_runner() as runner:
            return [CompletionItem(name) for name in runner.scheduler_backends() if name.startswith(incomplete)]
    except TransloadError:
        return []


def complete_components(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of components, else files."""
    from transload.components import get_components

    try:
        found = get_components()
    except TransloadError:
        found = {}
    items = [CompletionItem(n, help=found[n].description) for n in sorted(found) if n.startswith(incomplete)]
    return items or [CompletionItem(incomplete, type="file")]


def handle_argument(**settings: Any) -> Callable[[F], F]:
    """Add the argument HANDLE: a handle in full or an app id of the default scheduler; several, with ``nargs=-1``."""
    if "nargs" not in settings:
        settings = {"metavar": "HANDLE", **settings, "nargs": -1, "required": True, "callback": _only_one}
    return click.argument("handle", shell_complete=complete_handles, **settings)


def _only_one(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str:
    """Return the one handle; of several words, say what is too much: a line of `list` may have been pasted."""
    if len(value) > 1:
        text = f"one HANDLE is asked for, {value[0]!r}: {' '.join(value[1:])!r} is too much"
        raise click.UsageError(f"{text} (of a line of `transload list`, give the first column)", ctx)
    return value[0]


def scheduler_option(text: str) -> Callable[[F], F]:
    """Add ``-s/--scheduler``."""
    return click.option("-s", "--scheduler", metavar="NAME", shell_complete=complete_schedulers, help=text)


def json_option(function: F) -> F:
    """Add ``--json``."""
    text = "Write JSON to stdout, and nothing else (shapes: docs/command-line.md)."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


# generic since click 8.2, and only there
if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
else:
    _FloatType = click.ParamType


class Duration(_FloatType):
    """A duration: ``90``, ``10m``, ``1h30m``; the value is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        from transload.cli._quantities import parse_duration
        from transload.errors import SpecError

        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_duration(value, param.opts[-1] if param is not None else "duration")
        except SpecError as exc:
            raise click.UsageError(str(exc), ctx) from exc
