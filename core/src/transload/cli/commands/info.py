"""``transload info``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from transload.cli._exit import ExitCode
from transload.cli._options import json_option

if TYPE_CHECKING:
    from transload.pipelines._adapter import AdapterInfo
    from transload.plugins import PluginInfo
    from transload.runner import Runner
    from transload.specs import runopts

_COLOURS = {"default": "bold", "ready": "green", "loaded": "green", "disabled": "dim", "broken": "red"}


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from transload.plugins import get_plugins

    plugins = get_plugins()
    names = {*plugins.names("schedulers"), *plugins.names("adapters"), *(info.name for info in plugins.infos())}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


@click.command(short_help="List schedulers, adapters and plugins, or explain one.")
@click.argument("name", required=False, shell_complete=_complete)
@json_option
def command(name: str | None, as_json: bool) -> int:
    """List what is installed: schedulers, adapters to workflow hosts, plugins. With NAME, tell all about it.

    Of a scheduler: its options (for `run -c OPTION=VALUE`) and what it can do. Of an adapter: what it can express,
    and what each state is called there. Of a plugin: what it provides, or why it is broken.
    TRANSLOAD_DISABLE_PLUGINS=NAME,NAME keeps plugins from being loaded.
    """
    from transload.cli._output import emit_json
    from transload.cli._session import open_runner
    from transload.pipelines._adapter import describe_adapters
    from transload.plugins import get_plugins

    def wanted(each: str) -> bool:
        return name is None or each == name

    with open_runner() as runner:
        default = runner.settings.scheduler
        schedulers = [_look(runner, each) for each in runner.scheduler_backends() if wanted(each)]
    adapters = [each for each in describe_adapters() if wanted(each.name)]
    plugins = [each for each in get_plugins().infos() if wanted(each.name)]
    if name is not None and not (schedulers or adapters or plugins):
        raise _unknown(name)
    if as_json:
        found = {"schedulers": [_scheduler_json(each) for each in schedulers]}
        emit_json({"default": default, **found, "adapters": list(map(asdict, adapters)), "plugins": _json(plugins)})
    elif name is None:
        _list(default, schedulers, adapters, plugins)
    else:
        _explain(schedulers, adapters, plugins)
    broken = any(each["error"] for each in schedulers) or any(each.status == "broken" for each in plugins)
    return ExitCode.MISTAKE if name is not None and broken else ExitCode.OK


def _unknown(name: str) -> Exception:
    from transload.errors import ConfigError
    from transload.plugins import get_plugins
    from transload.specs import nearest

    plugins = get_plugins()
    known = [*plugins.names("schedulers"), *plugins.names("adapters"), *(info.name for info in plugins.infos())]
    return ConfigError(f"{name!r}: no scheduler, adapter or plugin of that name is installed: {nearest(name, known)}")


def _look(runner: Runner, name: str) -> dict[str, Any]:
    """Return name, options and capabilities, or the error of a scheduler that does not work."""
    from transload.errors import TransloadError
    from transload.specs import runopts

    found: dict[str, Any] = {"name": name, "kind": name, "location": "", "capabilities": None, "error": None}
    found |= {"opts": runopts(), "connection": runopts()}
    try:
        found["kind"] = runner.cluster(name).kind
        scheduler = runner.scheduler(name)
        found |= {"location": scheduler.location(), "connection": scheduler.connection_opts()}
        return found | {"opts": runner.scheduler_run_opts(name), "capabilities": scheduler.capabilities}
    except TransloadError as exc:
        return found | {"error": str(exc)}


def _list(
    default: str, schedulers: list[dict[str, Any]], adapters: list[AdapterInfo], plugins: list[PluginInfo]
) -> None:
    from transload.cli._output import emit_table, paint
    from transload.plugins import get_plugins

    rows = []
    registry = get_plugins().registry("schedulers")
    for each in schedulers:
        status = "broken" if each["error"] else "default" if each["name"] == default else "ready"
        reach = "" if each["capabilities"] is None else f"reachable from: {each['capabilities'].reachable_from}"
        kind = each["kind"]
        origin = registry[kind].plugin if kind in registry else ""
        about = "; ".join(part for part in (_whereabouts(each), reach) if part)
        rows.append(("scheduler", each["name"], status, origin, each["error"] or about))
    for adapter in adapters:
        ready = adapter.status == "ready"
        about = "" if ready else adapter.status
        rows.append(("adapter", adapter.name, "ready" if ready else "broken", adapter.plugin, about))
    for plugin in plugins:
        about = plugin.error.strip().rpartition("\n")[2] or _provides(plugin)
        rows.append(("plugin", plugin.name, plugin.status, _origin(plugin), about))
    shown = [(what, name, paint(status, _COLOURS[status]), origin, about) for what, name, status, origin, about in rows]
    emit_table(("WHAT", "NAME", "STATUS", "FROM", "ABOUT"), shown)


def _whereabouts(each: dict[str, Any]) -> str:
    kind = "" if each["kind"] == each["name"] else f"kind: {each['kind']}"
    return "; ".join(part for part in (kind, each["location"] and f"leads to: {each['location']}") if part)


def _explain(schedulers: list[dict[str, Any]], adapters: list[AdapterInfo], plugins: list[PluginInfo]) -> None:
    from transload.cli._output import emit

    parts: list[tuple[Callable[[Any], None], Any]] = [
        *((_explain_scheduler, each) for each in schedulers),
        *((_explain_adapter, each) for each in adapters),
        *((_explain_plugin, each) for each in plugins),
    ]
    for number, (explain, each) in enumerate(parts):
        if number:
            emit()
        explain(each)


def _explain_scheduler(item: dict[str, Any]) -> None:
    from transload.cli._output import emit, paint
    from transload.specs import get_type_name

    about = f" ({_whereabouts(item)})" if _whereabouts(item) else ""
    emit(paint(f"scheduler {item['name']}{about}", "bold") + (f": {item['error']}" if item["error"] else ""))
    for key, opt in (*item["connection"], *item["opts"]):
        words = "required" if opt.is_required else "" if opt.default is None else f"default {opt.default}"
        where = "" if item["opts"].get(key) else "connection setting"
        kind = ", ".join(part for part in (where, get_type_name(opt.opt_type), words) if part)
        emit(f"  {key} ({kind}): {opt.help}")
    for name, value in _capabilities(item["capabilities"]).items():
        emit(f"  {name}: {_words(value)}")


def _explain_adapter(row: AdapterInfo) -> None:
    from transload.cli._output import emit, paint

    emit(paint(f"adapter {row.name}", "bold") + ("" if row.status == "ready" else f": {row.status}"))
    for name, able in row.capabilities.items():
        emit(f"  {name}: {_words(able)}{f' ({row.notes[name]})' if name in row.notes else ''}")
    for state, theirs in row.states.items():
        emit(f"  {state}: {theirs}")


def _explain_plugin(info: PluginInfo) -> None:
    from transload.cli._output import emit, paint

    emit(paint(f"plugin {info.name}", "bold") + f": {info.status}, from {_origin(info)}")
    if info.error:
        emit("\n".join(f"  {line}" for line in f"{info.value}:\n{info.error}".rstrip().splitlines()))
    elif info.provides:
        emit(f"  {_provides(info)}")


def _words(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else ", ".join(value) if type(value) is list else value


def _origin(info: PluginInfo) -> str:
    return f"{info.dist} {info.version}".strip() or "built in"


def _provides(info: PluginInfo) -> str:
    return "; ".join(f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in info.provides.items())


def _capabilities(capabilities: Any) -> dict[str, Any]:
    """Return capabilities as JSON values: sets as sorted lists of names."""

    def plain(value: Any) -> Any:
        return sorted(item.value for item in value) if isinstance(value, (set, frozenset)) else value

    return {} if capabilities is None else {name: plain(value) for name, value in asdict(capabilities).items()}


def _scheduler_json(item: dict[str, Any]) -> dict[str, Any]:
    from transload.specs import get_type_name

    def rows(opts: runopts) -> list[dict[str, object]]:
        return [
            {
                "name": key,
                "type": get_type_name(opt.opt_type),
                "default": opt.default,
                "required": opt.is_required,
                "help": opt.help,
            }
            for key, opt in opts
        ]

    capabilities = _capabilities(item["capabilities"]) or None
    return {
        "name": item["name"],
        "kind": item["kind"],
        "location": item["location"] or None,
        "error": item["error"],
        "connection": rows(item["connection"]),
        "options": rows(item["opts"]),
        "capabilities": capabilities,
    }


def _json(infos: list[PluginInfo]) -> list[dict[str, object]]:
    return [
        {
            "name": info.name,
            "value": info.value,
            "distribution": info.dist or None,
            "version": info.version or None,
            "status": info.status,
            "error": info.error or None,
            "provides": info.provides,
        }
        for info in infos
    ]
