"""The commands ``transload info``, ``config`` and ``completion``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from transload.cli.application import COMPLETE
from transload.cli.exit_codes import ExitCode
from transload.cli.options import json_option
from transload.cli.output import emit, emit_json, emit_table, paint
from transload.cli.session import open_runner
from transload.errors import ConfigError, TransloadError
from transload.pipelines.adapter import describe_adapters
from transload.plugins import PluginInfo, get_plugins
from transload.plugins.distributions import DISTRIBUTIONS, install_hint
from transload.runner import Runner, load_settings
from transload.schedulers.api import features
from transload.specs import MASK, Connection, Option, Options, looks_secret, masked_url, nearest
from transload.specs.checks import closest
from transload.specs.options import OptionFields

AdapterRows = list[dict[str, Any]]

_COLOURS = {
    "default": "bold",
    "installed": "green",
    "loaded": "green",
    "disabled": "dim",
}


@dataclass
class _Scheduler:
    """A scheduler with its options and capabilities, or the reason why it does not work."""

    name: str
    kind: str
    location: str = ""
    error: str | None = None
    connection: type[Connection] = Connection
    options: type[Options] = Options
    capabilities: dict[str, Any] = field(default_factory=dict)

    def where(self) -> str:
        """Return the scheduler's kind, if its name differs, and its location."""
        parts = []
        if self.kind != self.name:
            parts.append(f"kind: {self.kind}")
        if self.location:
            parts.append(f"leads to: {self.location}")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "kind": self.kind,
            "location": self.location or None,
            "error": self.error,
            "connection": _options_json(self.connection),
            "options": _options_json(self.options),
            "capabilities": self.capabilities or None,
        }


def _names() -> list[str]:
    plugins = get_plugins()
    return [
        *plugins.names("schedulers"),
        *plugins.names("adapters"),
        *(info.name for info in plugins.infos()),
    ]


def _hint(name: str) -> str:
    """Return a hint about a name that is not installed."""
    for distribution in DISTRIBUTIONS:
        if distribution.plugin == name:
            return install_hint(distribution)
    close = closest(name, [distribution.plugin for distribution in DISTRIBUTIONS])
    if close is not None:
        return f"did you mean {close!r}?"
    return nearest(name, sorted(set(_names())))


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(_names())) if name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, shell_complete=_complete)
@json_option
def info(name: str | None, as_json: bool) -> int:
    """List the installed schedulers, adapters and plugins, or show one.

    For a scheduler, show its options (for `run -c OPTION=VALUE`) and its capabilities. For an
    adapter to an orchestrator, show its names of the states. For a plugin,
    show what it provides, or why it is broken. TRANSLOAD_DISABLE_PLUGINS=NAME,NAME disables plugins.
    """
    with open_runner() as runner:
        default = runner.settings.scheduler
        known = runner.known_schedulers()
        schedulers = [_look(runner, each) for each in known if name in (None, each)]
    adapters = [each for each in describe_adapters() if name in (None, each["name"])]
    plugins = [each for each in get_plugins().infos() if name in (None, each.name)]
    if not (schedulers or adapters or plugins):
        raise ConfigError(
            f"{name!r}: no scheduler, adapter or plugin of that name is installed; "
            f"{_hint(str(name))}"
        )
    if as_json:
        emit_json(
            {
                "default": default,
                "schedulers": [each.to_json() for each in schedulers],
                "adapters": adapters,
                "plugins": [_plugin_json(each) for each in plugins],
            }
        )
    elif name is None:
        _list(default, schedulers, adapters, plugins)
    else:
        texts = [
            *map(_about_scheduler, schedulers),
            *map(_about_adapter, adapters),
            *map(_about_plugin, plugins),
        ]
        emit("\n\n".join("\n".join(lines) for lines in texts))
    if name is None:
        return ExitCode.OK
    broken_scheduler = any(each.error for each in schedulers)
    broken_plugin = any(each.status == "broken" for each in plugins)
    return ExitCode.MISTAKE if broken_scheduler or broken_plugin else ExitCode.OK


def _look(runner: Runner, name: str) -> _Scheduler:
    """Return the facts about a scheduler. Its error says why some are missing."""
    found = _Scheduler(name=name, kind=name)
    try:
        found.kind = runner.cluster(name).kind
        scheduler = runner.scheduler(name)
        found.location = scheduler.location()
        found.connection = scheduler.connection
        found.options = runner.scheduler_run_opts(name)
        found.capabilities = features(scheduler)
        runner.configured_options(name)  # which refuses options that it does not have
    except TransloadError as exc:
        found.error = str(exc)
    return found


def _list(
    default: str, schedulers: list[_Scheduler], adapters: AdapterRows, plugins: list[PluginInfo]
) -> None:
    """Write a table with a row for each scheduler, adapter and plugin."""
    rows = [
        *(_scheduler_row(each, default) for each in schedulers),
        *(_adapter_row(each) for each in adapters),
        *(_plugin_row(each) for each in plugins),
    ]
    emit_table(("WHAT", "NAME", "STATUS", "FROM", "ABOUT"), rows)


def _scheduler_row(item: _Scheduler, default: str) -> tuple[str, ...]:
    registry = get_plugins().registry("schedulers")
    origin = registry[item.kind].plugin if item.kind in registry else ""
    if item.error:
        return "scheduler", item.name, _painted("broken"), origin, item.error
    status = "default" if item.name == default else "installed"
    about = f"reachable from: {item.capabilities['reach']}"
    where = item.where()
    if where:
        about = f"{where}; {about}"
    return "scheduler", item.name, _painted(status), origin, about


def _adapter_row(adapter: dict[str, Any]) -> tuple[str, ...]:
    if adapter["status"] == "installed":
        return "adapter", adapter["name"], _painted("installed"), adapter["plugin"], ""
    return "adapter", adapter["name"], _painted("broken"), adapter["plugin"], adapter["status"]


def _plugin_row(plugin: PluginInfo) -> tuple[str, ...]:
    last_line = plugin.error.strip().rpartition("\n")[2]
    about = last_line or _provides(plugin)
    return "plugin", plugin.name, _painted(plugin.status), plugin.origin, about


def _painted(status: str) -> str:
    return paint(status, _COLOURS.get(status, "red"))


def _about_scheduler(item: _Scheduler) -> list[str]:
    title = f"scheduler {item.name}"
    where = item.where()
    if where:
        title = f"{title} ({where})"
    head = paint(title, "bold")
    if item.error:
        head = f"{head}: {item.error}"
    options = [_about_option(each, Connection.WHAT) for each in item.connection.table().values()]
    options += [_about_option(each) for each in item.options.table().values()]
    capabilities = [f"  {name}: {_words(value)}" for name, value in item.capabilities.items()]
    return [head, *options, *capabilities]


def _about_option(option: Option, *kind: str) -> str:
    """Return a line about an option. `kind` is the kind of option."""
    words = [*kind, option.type_name]
    if option.is_required:
        words.append("required")
    elif option.default not in (None, [], {}):
        words.append(f"default {option.default}")
    return f"  {option.name} ({', '.join(words)}): {option.help}"


def _about_adapter(row: dict[str, Any]) -> list[str]:
    head = paint(f"adapter {row['name']}", "bold")
    if row["status"] != "installed":
        head = f"{head}: {row['status']}"
    return [head, *(f"  {state}: {theirs}" for state, theirs in row["states"].items())]


def _about_plugin(info: PluginInfo) -> list[str]:
    head = paint(f"plugin {info.name}", "bold") + f": {info.status}, from {info.origin}"
    if info.error:
        text = f"{info.value}:\n{info.error}".rstrip()
        return [head, *(f"  {line}" for line in text.splitlines())]
    if info.provides:
        return [head, f"  {_provides(info)}"]
    return [head]


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return str(value)


def _provides(info: PluginInfo) -> str:
    return "; ".join(
        f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in info.provides.items()
    )


def _options_json(options: type[OptionFields]) -> list[dict[str, object]]:
    return [
        {
            "name": each.name,
            "type": each.type_name,
            "default": each.default,
            "required": each.is_required,
            "help": each.help,
        }
        for each in options.table().values()
    ]


def _plugin_json(info: PluginInfo) -> dict[str, object]:
    fields = asdict(info)
    provides = fields.pop("provides")
    shown = {}
    for key, value in fields.items():
        name = "distribution" if key == "dist" else key
        shown[name] = value or None
    return {**shown, "provides": provides}


@click.command()
@click.argument("key", required=False)
@json_option
def config(key: str | None, as_json: bool) -> None:
    """Show the current settings, or only KEY, with the file or variable of each."""
    found = load_settings().all()
    if key is not None:
        chosen = [item for item in found if item.key == key or item.key.startswith(f"{key}.")]
        if not chosen:
            raise ConfigError(f"{key!r} is not set: {nearest(key, [item.key for item in found])}")
        found = chosen
    rows = [(item.key, _shown(item.key, item.value), item.source) for item in found]
    if as_json:
        emit_json({"settings": _records(("key", "value", "source"), rows)})
    else:
        emit_table(
            ("SETTING", "VALUE", "FROM"),
            [(name, str(value), source) for name, value, source in rows],
        )


def _records(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]


def _shown(key: str, value: Any) -> Any:
    """Return a value for display, with secrets and passwords in URLs masked."""
    if value and any(looks_secret(part) for part in key.split(".")[1:] or [key]):
        return MASK
    if isinstance(value, str):
        return masked_url(value)
    return value


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print the script with which SHELL completes commands, schedulers, components and handles.

    \b
    bash:  eval "$(transload completion bash)"        in ~/.bashrc
    zsh:   eval "$(transload completion zsh)"         in ~/.zshrc
    fish:  transload completion fish > ~/.config/fish/completions/transload.fish
    """  # noqa: D301 - \b keeps the lines below as they are
    cls: Any = get_completion_class(shell)
    script = cls(ctx.command, {}, "transload", COMPLETE).source()
    if as_json:
        emit_json({"shell": shell, "script": script})
    else:
        emit(script)
