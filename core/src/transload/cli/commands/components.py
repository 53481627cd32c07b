"""``transload components``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from transload.cli._exit import ExitCode
from transload.cli._options import complete_components, json_option

if TYPE_CHECKING:
    from transload.components import Component, Parameter


@click.group(invoke_without_command=True, short_help="List, show and check components.")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List components; `show` tells the arguments of one, `check` what is wrong with one."""
    ctx.obj = as_json  # before the name of a subcommand it means the same as after it
    if ctx.invoked_subcommand is None:
        _list(as_json)


def _list(as_json: bool) -> None:
    from transload.cli._output import emit_json, emit_table, note
    from transload.components import broken_components, get_components

    found = get_components()
    broken = broken_components()
    if as_json:
        emit_json(
            {
                "components": [{"name": name, "description": item.description} for name, item in sorted(found.items())],
                "broken": {name: str(why) for name, why in broken.items()},
            }
        )
        return
    emit_table(("COMPONENT", "WHAT IT DOES"), [(n, _first_line(item.description)) for n, item in sorted(found.items())])
    for name, why in broken.items():
        note(f"component {name} is broken: {why}")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


@command.command("show", short_help="Show the arguments of a component.")
@click.argument("name", shell_complete=complete_components)
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show what the component NAME does, and its arguments: as `transload run NAME --help`."""
    from transload.cli._output import emit_json
    from transload.cli.commands.run import show_component
    from transload.components import get_component

    if as_json or ctx.obj:
        emit_json(_json(get_component(name)))
    else:
        show_component(name)


def _json(component: Component) -> dict[str, Any]:
    from transload.runner import load_settings

    defaults = load_settings().component_defaults(component.name)
    return {
        "name": component.name,
        "description": component.description,
        "parameters": [_parameter(each, defaults) for each in component.parameters],
    }


def _parameter(parameter: Parameter, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return one argument of a component as JSON values, with the default that the settings give it."""
    default = defaults.get(parameter.name, None if parameter.required else parameter.default)
    if not isinstance(default, (str, int, float, bool, type(None))):
        default = str(default)
    return {
        "name": parameter.name,
        "type": parameter.type_name,
        "required": parameter.required and parameter.name not in defaults,
        "default": default,
        "help": parameter.help,
    }


@command.command("check", short_help="Say what is wrong with a component, by line.")
@click.argument("name", metavar="FILE[:FUNCTION]", shell_complete=complete_components)
@json_option
@click.pass_context
def check(ctx: click.Context, name: str, as_json: bool) -> int:
    """Say what is wrong with a component, by line. Exits with 2 if anything is."""
    from transload.cli._output import emit, emit_json, note
    from transload.components import check as check_component

    findings = check_component(name)
    errors = [finding for finding in findings if finding.level == "error"]
    if as_json or ctx.obj:
        rows = [{"path": f.path, "line": f.line, "level": f.level, "message": f.message} for f in findings]
        emit_json({"component": name, "ok": not errors, "findings": rows})
    else:
        for finding in findings:
            emit(str(finding))
        if not findings:
            note(f"{name}: nothing is wrong")
    return ExitCode.MISTAKE if errors else ExitCode.OK
