"""The settings of a job as options of a command, the same for every command that takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

import click

from transload.cli.env_file import read_env
from transload.errors import SpecError
from transload.specs import Notice
from transload.specs.interruptions import signal_name
from transload.specs.settings import SETTINGS, OverrideOptions, Setting, read_settings

__all__ = ["job_options", "job_settings"]

F = TypeVar("F", bound=Callable[..., Any])

_TYPED: Final = "transload.cli.job_options"
"""Under this key the context of a command keeps what was typed, by the name of the setting."""

_PREFIX: Final = "job_"
"""Begins the names of these options, since a command may have one of its own of the same name."""

_PARTS: Final = {
    "env": (
        "env_file",
        Setting("", str, "Variables for the roles, from a .env file.", "FILE", adds=True),
    ),
    "notice": (
        "notice_signal",
        Setting("", str, "The signal of the notice; default: TERM.", "NAME"),
    ),
}
"""Setting → the option beside its own that makes a part of it."""


def job_options(*, without: Collection[str] = ()) -> Callable[[F], F]:
    """Add the settings of a job to a command, as options. `job_settings` returns what was typed.

    Args:
        without: settings for which the command has an option in a form of its own.
    """

    def add(function: F) -> F:
        for name, setting in reversed(_shown()):
            if name not in without:
                function = _option(name, setting, setting.option(name))(function)
        return function

    return add


def _shown() -> list[tuple[str, Setting]]:
    """Return the settings by their names, each with its part."""
    shown = []
    for name, setting in SETTINGS.items():
        shown.append((name, setting))
        if name in _PARTS:
            shown.append(_PARTS[name])
    return shown


def _option(name: str, setting: Setting, flag: str) -> Callable[[F], F]:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta.setdefault(_TYPED, {})[name] = value

    kind: dict[str, Any] = {"is_flag": True}
    if setting.metavar:
        kind = {"metavar": setting.metavar, "multiple": setting.adds}
    return click.option(
        flag, f"{_PREFIX}{name}", help=setting.help, callback=keep, expose_value=False, **kind
    )


def job_settings(ctx: click.Context) -> OverrideOptions:
    """Return the settings that were typed as options of `job_options`.

    Raises:
        SpecError: for a value that no job can have, by the name of its option.
    """
    given = dict(ctx.meta.get(_TYPED, {}))
    given["env"] = read_env(given.pop("env", ()), given.pop("env_file", ()))
    given["secrets"] = _sources(given.pop("secrets", ()))
    given["notice"] = _notice(given.get("notice"), given.pop("notice_signal", None))
    typed = {name: value for name, value in given.items() if value not in (None, False, (), {})}
    options = {param.name: param.opts[0] for param in ctx.command.params}
    read_settings(typed, lambda name: options[f"{_PREFIX}{name}"])
    return cast("OverrideOptions", typed)


def _sources(texts: Iterable[str]) -> dict[str, str]:
    """Return the sources of secrets, by the names of variables."""
    found = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if not equals:
            raise SpecError(f"--secret {name!r}: must be NAME=SOURCE, such as {name}=env:{name}")
        found[name] = source
    return found


def _notice(time: str | None, signal: str | None) -> Notice | str | None:
    """Return the notice that the options ask for, or None if they ask for none."""
    if signal is None:
        return time
    settings = read_settings({"notice": time}, lambda _: "--notice")
    found: Notice = settings.get("notice", Notice())
    return replace(found, signal=signal_name(signal, "--notice-signal"))
