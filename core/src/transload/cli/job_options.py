"""The settings of a job as options of a command, the same for every command that takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import click

from transload.cli.env_file import read_env
from transload.errors import SpecError
from transload.specs import Notice
from transload.specs.interruptions import signal_name
from transload.specs.settings import SETTINGS, OverrideOptions, Setting, read_settings

__all__ = ["job_options", "job_settings"]

F = TypeVar("F", bound=Callable[..., Any])

_VALUES: Final = "transload.cli.job_options"
"""Under this key the context of a command keeps the values of these options."""

_SPELLED: Final = "transload.cli.job_options.spelled"
"""Under this key it keeps the option that the user types for each setting."""

_NAMES: Final = {"mounts": "mount", "secrets": "secret"}
"""Setting → its option, where each gives one of several."""

_ENV_FILE: Final = Setting("", str, "Variables for the roles, from a .env file.", "FILE", adds=True)
_SIGNAL: Final = Setting("", str, "The signal of the notice; default: TERM.", "NAME")
_PARTS: Final = {"env": ("env_file", _ENV_FILE), "notice": ("notice_signal", _SIGNAL)}
"""Setting → the option beside its own that makes a part of it."""


def job_options(
    spelled: Mapping[str, str] = MappingProxyType({}), without: Collection[str] = ()
) -> Callable[[F], F]:
    """Add the settings of a job to a command, as options. `job_settings` returns what was typed.

    Args:
        spelled: name of an option → the option that the user types, where another one has its name.
        without: options that the command has in a form of its own.
    """

    def add(function: F) -> F:
        for name, setting in reversed(_shown()):
            option = _NAMES.get(name, name)
            if option not in without:
                flag = spelled.get(option, f"--{option.replace('_', '-')}")
                function = _added(function, name, setting, flag)
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


def _added(function: F, name: str, setting: Setting, flag: str) -> F:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta.setdefault(_VALUES, {})[name] = value
        ctx.meta.setdefault(_SPELLED, {})[name] = flag

    decorate = partial(
        click.option, flag, f"job_{name}", help=setting.help, callback=keep, expose_value=False
    )
    if not setting.metavar:
        return decorate(is_flag=True)(function)
    return decorate(metavar=setting.metavar, multiple=setting.adds)(function)


def job_settings(ctx: click.Context) -> OverrideOptions:
    """Return the settings that were typed as options of `job_options`.

    Raises:
        SpecError: for a value that no job can have, by the name of its option.
    """
    given = dict(ctx.meta.get(_VALUES, {}))
    spelled: Mapping[str, str] = ctx.meta.get(_SPELLED, {})
    given["env"] = read_env(given.pop("env", ()), given.pop("env_file", ()))
    given["secrets"] = _sources(given.pop("secrets", ()))
    given["notice"] = _notice(given.get("notice"), given.pop("notice_signal", None))
    typed = {name: value for name, value in given.items() if value not in (None, False, (), {})}
    read_settings(typed, lambda name: spelled.get(name, name))
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
