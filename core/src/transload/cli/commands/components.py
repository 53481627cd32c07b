"""The command ``transload components``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from transload.cli.commands.run import show_component
from transload.cli.exit_codes import ExitCode
from transload.cli.options import complete_components, json_option
from transload.cli.output import emit, emit_json, emit_table, note
from transload.components import broken_components, get_component, get_components
from transload.components import check as check_component
from transload.runner import load_settings

if TYPE_CHECKING:
    from transload.components import Parameter


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def components(ctx: click.Context, as_json: bool) -> None:
    """List components. `show` explains one, and `check` finds its errors."""
    ctx.obj = as_json  # the option means the same before and after the name of a subcommand
    if ctx.invoked_subcommand is None:
        _list(as_json)


def _list(as_json: bool) -> None:
    found = sorted(get_components().items())
    broken = broken_components()
    if as_json:
        shown = [{"name": name, "description": item.description} for name, item in found]
        emit_json({"components": shown, "broken": {name: str(why) for name, why in broken.items()}})
        return
    rows = [(name, _summary(item.description)) for name, item in found]
    emit_table(("COMPONENT", "WHAT IT DOES"), rows)
    for name, why in broken.items():
        note(f"component {name} is broken: {why}")


def _summary(description: str) -> str:
    """Return the first paragraph of a description as one line."""
    return " ".join(description.strip().partition("\n\n")[0].split())


@components.command("show")
@click.argument("name", shell_complete=complete_components)
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show the help of the component NAME."""
    if as_json or ctx.obj:
        emit_json(_json(name))
    else:
        show_component(name)


def _json(name: str) -> dict[str, Any]:
    component = get_component(name)
    defaults = load_settings().component_defaults(component)
    rows = [
        {**_parameter_json(each, defaults), "help": component.helps.get(each.name, "")}
        for each in component.parameters
    ]
    return {"name": component.name, "description": component.description, "parameters": rows}


def _parameter_json(parameter: Parameter, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a parameter, with its default in the settings or the signature."""
    default = None if parameter.required else parameter.default
    default = defaults.get(parameter.name, default)
    if not isinstance(default, (str, int, float, bool, type(None))):
        default = str(default)
    return {
        "name": parameter.name,
        "type": parameter.type_name,
        "required": parameter.required and parameter.name not in defaults,
        "default": default,
    }


@components.command("check")
@click.argument("name", metavar="FILE[:FUNCTION]", shell_complete=complete_components)
@json_option
@click.pass_context
def check(ctx: click.Context, name: str, as_json: bool) -> int:
    """Show the errors of a component, by line. Exits with 2 if there are any."""
    findings = check_component(name)
    errors = [finding for finding in findings if finding.level == "error"]
    if as_json or ctx.obj:
        rows = [
            {"path": f.path, "line": f.line, "level": f.level, "message": f.message}
            for f in findings
        ]
        emit_json({"component": name, "ok": not errors, "findings": rows})
    else:
        for finding in findings:
            emit(str(finding))
        if not findings:
            note(f"{name}: no errors")
    return ExitCode.MISTAKE if errors else ExitCode.OK
