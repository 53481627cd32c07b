"""``transload info``, ``config``, ``doctor`` and ``completion``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from transload.cli.command_table import COMPLETE
from transload.cli.exit_codes import ExitCode
from transload.cli.options import json_option
from transload.cli.output import emit, emit_json, emit_table, is_terminal, paint
from transload.errors import ConfigError, TransloadError
from transload.pipelines.adapter import describe_adapters
from transload.plugins import PluginInfo, get_plugins
from transload.runner import Runner, load_settings
from transload.specs import MASK, get_type_name, looks_secret, masked_url, nearest, runopts

Rows = list[dict[str, Any]]

_COLOURS = {
    "default": "bold",
    "ready": "green",
    "loaded": "green",
    "ok": "green",
    "disabled": "dim",
    "missing": "dim",
}
_MARKS = {"ok": "✓ ok", "missing": "– missing", "broken": "✗ broken"}


def _names() -> list[str]:
    plugins = get_plugins()
    return [
        *plugins.names("schedulers"),
        *plugins.names("adapters"),
        *(info.name for info in plugins.infos()),
    ]


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(_names())) if name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, shell_complete=_complete)
@json_option
def info(name: str | None, as_json: bool) -> int:
    """List what is installed: schedulers, adapters to workflow hosts, plugins. With NAME, tell all
    about it.

    Of a scheduler: its options (for `run -c OPTION=VALUE`) and what it can do. Of an adapter: what
    it can express, and what each state is called there. Of a plugin: what it provides, or why it is
    broken. TRANSLOAD_DISABLE_PLUGINS=NAME,NAME keeps plugins from being loaded.
    """
    from transload.cli.session import open_runner

    with open_runner() as runner:
        default = runner.settings.scheduler
        schedulers = [
            _look(runner, each) for each in runner.scheduler_backends() if name in (None, each)
        ]
    adapters = [each for each in describe_adapters() if name in (None, each["name"])]
    plugins = [each for each in get_plugins().infos() if name in (None, each.name)]
    if not (schedulers or adapters or plugins):
        hint = nearest(str(name), _names())
        raise ConfigError(
            f"{name!r}: no scheduler, adapter or plugin of that name is installed: {hint}"
        )
    if as_json:
        found = {"schedulers": [_scheduler_json(each) for each in schedulers], "adapters": adapters}
        emit_json(
            {"default": default, **found, "plugins": [_plugin_json(each) for each in plugins]}
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
    broken = any(each["error"] for each in schedulers) or any(
        each.status == "broken" for each in plugins
    )
    return ExitCode.MISTAKE if name is not None and broken else ExitCode.OK


def _look(runner: Runner, name: str) -> dict[str, Any]:
    """Return name, options and capabilities, or the error of a scheduler that does not work."""
    found: dict[str, Any] = {"name": name, "kind": name, "location": "", "error": None}
    found |= {"connection": runopts(), "options": runopts(), "capabilities": {}}
    try:
        found["kind"] = runner.cluster(name).kind
        scheduler = runner.scheduler(name)
        found |= {"location": scheduler.location(), "connection": scheduler.connection_opts()}
        able = {key: _plain(value) for key, value in scheduler.capabilities._asdict().items()}
        return found | {"options": runner.scheduler_run_opts(name), "capabilities": able}
    except TransloadError as exc:
        return found | {"error": str(exc)}


def _plain(value: Any) -> Any:
    """Return a capability as a JSON value: a set as a sorted list of names."""
    return sorted(item.value for item in value) if isinstance(value, (set, frozenset)) else value


def _list(default: str, schedulers: Rows, adapters: Rows, plugins: list[PluginInfo]) -> None:
    rows = []
    registry = get_plugins().registry("schedulers")
    for each in schedulers:
        status = "broken" if each["error"] else "default" if each["name"] == default else "ready"
        reach = (
            f"reachable from: {each['capabilities']['reachable_from']}"
            if each["capabilities"]
            else ""
        )
        origin = registry[each["kind"]].plugin if each["kind"] in registry else ""
        about = "; ".join(part for part in (_whereabouts(each), reach) if part)
        rows.append(("scheduler", each["name"], status, origin, each["error"] or about))
    for adapter in adapters:
        wrong = "" if adapter["status"] == "ready" else adapter["status"]
        rows.append(
            ("adapter", adapter["name"], "broken" if wrong else "ready", adapter["plugin"], wrong)
        )
    for plugin in plugins:
        about = plugin.error.strip().rpartition("\n")[2] or _provides(plugin)
        rows.append(("plugin", plugin.name, plugin.status, _origin(plugin), about))
    shown = [
        (what, name, _painted(status), origin, about) for what, name, status, origin, about in rows
    ]
    emit_table(("WHAT", "NAME", "STATUS", "FROM", "ABOUT"), shown)


def _painted(status: str, text: str = "") -> str:
    return paint(text or status, _COLOURS.get(status, "red"))


def _whereabouts(each: dict[str, Any]) -> str:
    kind = "" if each["kind"] == each["name"] else f"kind: {each['kind']}"
    return "; ".join(
        part for part in (kind, each["location"] and f"leads to: {each['location']}") if part
    )


def _about_scheduler(item: dict[str, Any]) -> list[str]:
    about = f" ({_whereabouts(item)})" if _whereabouts(item) else ""
    lines = [
        paint(f"scheduler {item['name']}{about}", "bold")
        + (f": {item['error']}" if item["error"] else "")
    ]
    for key, opt in (*item["connection"], *item["options"]):
        words = (
            "required"
            if opt.is_required
            else ""
            if opt.default is None
            else f"default {opt.default}"
        )
        where = "" if item["options"].get(key) else "connection setting"
        kind = ", ".join(part for part in (where, get_type_name(opt.opt_type), words) if part)
        lines.append(f"  {key} ({kind}): {opt.help}")
    return lines + [f"  {name}: {_words(value)}" for name, value in item["capabilities"].items()]


def _about_adapter(row: dict[str, Any]) -> list[str]:
    lines = [
        paint(f"adapter {row['name']}", "bold")
        + ("" if row["status"] == "ready" else f": {row['status']}")
    ]
    notes = row["notes"]
    for name, able in row["capabilities"].items():
        lines.append(f"  {name}: {_words(able)}{f' ({notes[name]})' if name in notes else ''}")
    return lines + [f"  {state}: {theirs}" for state, theirs in row["states"].items()]


def _about_plugin(info: PluginInfo) -> list[str]:
    head = paint(f"plugin {info.name}", "bold") + f": {info.status}, from {_origin(info)}"
    if info.error:
        return [
            head,
            *(f"  {line}" for line in f"{info.value}:\n{info.error}".rstrip().splitlines()),
        ]
    return [head, f"  {_provides(info)}"] if info.provides else [head]


def _words(value: Any) -> str:
    return (
        ("yes" if value else "no")
        if isinstance(value, bool)
        else ", ".join(value)
        if type(value) is list
        else value
    )


def _origin(info: PluginInfo) -> str:
    return f"{info.dist} {info.version}".strip() or "built in"


def _provides(info: PluginInfo) -> str:
    return "; ".join(
        f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in info.provides.items()
    )


def _scheduler_json(item: dict[str, Any]) -> dict[str, Any]:
    return {
        **item,
        "location": item["location"] or None,
        "connection": _options_json(item["connection"]),
        "options": _options_json(item["options"]),
        "capabilities": item["capabilities"] or None,
    }


def _options_json(opts: runopts) -> list[dict[str, object]]:
    told = ("name", "type", "default", "required", "help")
    return _records(
        told,
        [(key, get_type_name(o.opt_type), o.default, o.is_required, o.help) for key, o in opts],
    )


def _plugin_json(info: PluginInfo) -> dict[str, object]:
    names = {"dist": "distribution"}
    return {
        names.get(key, key): value if key == "provides" else value or None
        for key, value in asdict(info).items()
    }


@click.command()
@click.argument("key", required=False)
@json_option
def config(key: str | None, as_json: bool) -> None:
    """Show the settings in force, each with the file or environment variable it comes from, or only
    KEY.
    """
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
    """Return a value for display: one whose name looks secret is masked, and so are passwords in
    URLs.
    """
    if value and any(looks_secret(part) for part in key.split(".")[1:] or [key]):
        return MASK
    return masked_url(value) if isinstance(value, str) else value


@click.command()
@click.option("--no-run", is_flag=True, help="Do not run a tiny app on the local scheduler.")
@json_option
def doctor(no_run: bool, as_json: bool) -> int:
    """Check what works here and what is missing: state folder, schedulers, plugins, hosts,
    versions.

    Exits with 0 if nothing is broken, else with 3. What is merely not installed is not broken.
    """
    from transload.cli.checks import BROKEN, all_checks

    checks = list(all_checks(run_app=not no_run))
    ok = all(status != BROKEN for _, _, status, _ in checks)
    if as_json:
        emit_json({"ok": ok, "checks": _records(("area", "name", "status", "detail"), checks)})
    else:
        marks = _MARKS if is_terminal(sys.stdout) else {}
        rows = [
            (_painted(status, marks.get(status, "")), area, name, detail)
            for area, name, status, detail in checks
        ]
        emit_table(("STATUS", "AREA", "WHAT", "FOUND"), rows)
    return ExitCode.OK if ok else ExitCode.UNAVAILABLE


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(ctx: click.Context, shell: str, as_json: bool) -> None:
    r"""Print the script that makes SHELL complete commands, schedulers, components and handles.

    \b
    bash:  eval "$(transload completion bash)"        in ~/.bashrc
    zsh:   eval "$(transload completion zsh)"         in ~/.zshrc
    fish:  transload completion fish > ~/.config/fish/completions/transload.fish
    """
    cls: Any = get_completion_class(shell)
    script = cls(ctx.command, {}, "transload", COMPLETE).source()
    if as_json:
        emit_json({"shell": shell, "script": script})
    else:
        emit(script)
