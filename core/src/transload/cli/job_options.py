"""The settings of a job as options of a command, the same for every command that takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import click

from transload.cli.env_file import read_env
from transload.cli.options import WholeNumber, cores, gpus
from transload.components import SETTING_HELP, OverrideOptions, overrides_of
from transload.specs import Notice
from transload.specs.interruptions import signal_name

__all__ = ["job_options", "job_settings"]

F = TypeVar("F", bound=Callable[..., Any])

_VALUES: Final = "transload.cli.job_options"
"""Under this key the context of a command keeps the values of these options."""

_SPELLED: Final = "transload.cli.job_options.spelled"
"""Under this key it keeps the option that the user types for each setting."""


@dataclass(frozen=True)
class _JobOption:
    """How a setting is typed.

    Args:
        name: name of the option. It is that of the setting, unless several make one setting.
        metavar: stands for the value in the help.
        type: reads the value.
        multiple: it may be given several times.
        is_flag: it takes no value.
        setting: which setting it makes. By default it is that of its name.
        help: what it does. By default it is what the setting does.
    """

    name: str
    metavar: str | None = None
    type: click.ParamType[Any] | Callable[[str | float], float] | None = None
    multiple: bool = False
    is_flag: bool = False
    setting: str = ""
    help: str = ""


_OPTIONS: Final = (
    _JobOption("name", "NAME"),
    _JobOption("env", "K=V", multiple=True),
    _JobOption(
        "env_file", "FILE", multiple=True, help="Variables for the roles, from a .env file."
    ),
    _JobOption("image", "IMAGE"),
    _JobOption("replicas", "N", type=WholeNumber()),
    _JobOption("retries", "N", type=WholeNumber()),
    _JobOption("retry_delay", "DURATION"),
    _JobOption("time_limit", "DURATION"),
    _JobOption("segment", "DURATION"),
    _JobOption("notice", "DURATION"),
    _JobOption("notice_signal", "NAME", help="The signal of the notice; default: TERM."),
    _JobOption("checkpoints", is_flag=True),
    _JobOption("max_interruptions", "N", type=WholeNumber()),
    _JobOption("stall_after", "DURATION"),
    _JobOption("on_stall", "WHAT"),
    _JobOption("progress_server", is_flag=True),
    _JobOption("cpu", "N", type=cores),
    _JobOption("gpu", "N", type=gpus),
    _JobOption("mem", "SIZE"),
    _JobOption("mount", "TEXT", multiple=True, setting="mounts"),
    _JobOption("role", "NAME"),
)


def job_options(
    spelled: Mapping[str, str] = MappingProxyType({}), without: Collection[str] = ()
) -> Callable[[F], F]:
    """Add the settings of a job to a command, as options. `job_settings` returns what was typed.

    Args:
        spelled: name of an option → the option that the user types, where another one has its name.
        without: options that the command has in a form of its own.
    """

    def add(function: F) -> F:
        for each in reversed(_OPTIONS):
            if each.name not in without:
                default = f"--{each.name.replace('_', '-')}"
                function = _added(function, each, spelled.get(each.name, default))
        return function

    return add


def _added(function: F, option: _JobOption, flag: str) -> F:
    setting = option.setting or option.name

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta.setdefault(_VALUES, {})[option.name] = value
        ctx.meta.setdefault(_SPELLED, {})[setting] = flag

    decorate = partial(
        click.option,
        flag,
        f"job_{option.name}",
        help=option.help or SETTING_HELP[setting],
        callback=keep,
        expose_value=False,
    )
    if option.is_flag:
        return decorate(is_flag=True)(function)
    return decorate(metavar=option.metavar, type=option.type, multiple=option.multiple)(function)


def job_settings(ctx: click.Context) -> OverrideOptions:
    """Return the settings that were typed as options of `job_options`.

    Raises:
        SpecError: for a value that no job can have, by the name of its option.
    """
    given = dict(ctx.meta.get(_VALUES, {}))
    spelled: Mapping[str, str] = ctx.meta.get(_SPELLED, {})
    env = given.pop("env", ())
    env_files = given.pop("env_file", ())
    if env or env_files:
        given["env"] = read_env(env, env_files)
    given["mounts"] = list(given.pop("mount", ())) or None
    given["notice"] = _notice(given.get("notice"), given.pop("notice_signal", None))
    typed = {}
    for name, value in given.items():
        if value is not None and value is not False:
            typed[name] = value
    overrides_of(typed, lambda name: spelled.get(name, name))
    return cast("OverrideOptions", typed)


def _notice(time: str | None, signal: str | None) -> Notice | str | None:
    """Return the notice that the options ask for, or None if they ask for none."""
    if signal is None:
        return time
    found = overrides_of({"notice": time}, lambda _: "--notice").notice or Notice()
    return replace(found, signal=signal_name(signal, "--notice-signal"))
