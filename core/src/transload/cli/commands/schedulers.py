"""``transload schedulers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from transload.cli._options import complete_schedulers, json_option

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.specs import runopts


@click.command(short_help="List schedulers and their options.")
@click.argument("name", required=False, shell_complete=complete_schedulers)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List schedulers with their options (for `run -c OPTION=VALUE`), or only the scheduler NAME."""
    from transload.cli._output import emit_json
    from transload.cli._session import open_runner

    with open_runner() as runner:
        default = runner.settings.scheduler
        names = [name] if name else runner.scheduler_backends()
        found = [_look(runner, each, must_work=name is not None) for each in names]
    if as_json:
        emit_json({"default": default, "schedulers": [_json(item) for item in found]})
        return
    for item in found:
        _show(item, default)


def _look(runner: Runner, name: str, must_work: bool) -> dict[str, Any]:
    """Return name, options and capabilities, or the error of a scheduler that does not work."""
    from transload.errors import TransloadError

    try:
        opts = runner.scheduler_run_opts(name)
        return {"name": name, "opts": opts, "capabilities": runner.scheduler(name).capabilities, "error": None}
    except TransloadError as exc:
        if must_work:
            raise
        return {"name": name, "opts": None, "capabilities": None, "error": str(exc)}


def _json(item: dict[str, Any]) -> dict[str, Any]:
    from transload.specs import get_type_name

    opts: runopts | None = item["opts"]
    options = [
        {
            "name": key,
            "type": get_type_name(opt.opt_type),
            "default": opt.default,
            "required": opt.is_required,
            "help": opt.help,
        }
        for key, opt in opts or ()
    ]
    return {
        "name": item["name"],
        "error": item["error"],
        "options": options,
        "capabilities": None if item["capabilities"] is None else capabilities_json(item["capabilities"]),
    }


def capabilities_json(capabilities: Any) -> dict[str, Any]:
    """Return capabilities as JSON values: sets as sorted lists of names."""
    from dataclasses import asdict

    def plain(value: Any) -> Any:
        return sorted(item.value for item in value) if isinstance(value, (set, frozenset)) else value

    return {name: plain(value) for name, value in asdict(capabilities).items()}


def _show(item: dict[str, Any], default: str) -> None:
    from transload.cli._output import emit, paint
    from transload.specs import get_type_name

    mark = " (default)" if item["name"] == default else ""
    emit(f"{paint(item['name'], 'bold')}{mark}{': ' + item['error'] if item['error'] else ''}")
    for key, opt in item["opts"] or ():
        extra = "required" if opt.is_required else "" if opt.default is None else f"default {opt.default}"
        kind = ", ".join(part for part in (get_type_name(opt.opt_type), extra) if part)
        emit(f"  {key} ({kind}): {opt.help}")
