"""Make the help text of a component from its signature and docstring."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from enum import Enum
from typing import Any

from transload.components.signature import HELP, Component, Parameter, spelling
from transload.specs.secrets import MASK, looks_secret

_COLUMN = 26


def component_help(
    component: Component,
    prog: str | None = None,
    width: int = 100,
    defaults: Mapping[str, Any] | None = None,
) -> str:
    """Return the help of a component as plain text.

    Args:
        component: the component.
        prog: the command in the usage line. None means ``transload run NAME``.
        width: columns at which to wrap lines.
        defaults: defaults in place of the function's own.

    Returns:
        Usage, description and an entry for each argument with its type and default. The text ends
        with a newline.
    """
    parameters = [_with_default(item, defaults or {}) for item in component.parameters]
    component = component._replace(parameters=tuple(parameters))
    rest = component.varargs
    usage = [f"usage: {prog or f'transload run {component.name}'}"]
    usage += [
        f"{spelling(item)} {_metavar(item)}" for item in component.parameters if item.required
    ]
    if any(not item.required and item is not rest for item in component.parameters):
        usage.append("[--NAME VALUE ...]")
    if rest is not None:
        usage.append(f"[-- {rest.name} ...]")
    lines = [" ".join(usage), ""]
    if component.description:
        lines += [component.description, ""]
    lines.append("arguments:")
    ordered = sorted(component.parameters, key=lambda item: (item is rest, not item.required))
    for item in ordered:
        lines += _entry(f"{spelling(item)} {_metavar(item)}", _text(item), width)
    lines += _entry(HELP, "show this help and exit", width)
    return "\n".join(lines) + "\n"


def _with_default(item: Parameter, defaults: Mapping[str, Any]) -> Parameter:
    if item.name not in defaults:
        return item
    return item._replace(default=defaults[item.name], required=False)


def _metavar(item: Parameter) -> str:
    shown = item.type_name.removesuffix(" | None")
    if item.kind == "varargs":
        return f"{shown} ..."
    return shown


def _text(item: Parameter) -> str:
    if item.kind == "varargs":
        return item.help
    note = "required" if item.required else f"default: {_default_text(item)}"
    return f"{item.help} ({note})".strip()


def _default_text(item: Parameter) -> Any:
    value = item.default
    if isinstance(value, str) and value and looks_secret(item.name):
        return MASK
    if isinstance(value, Enum):
        return value.name
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if value == "":
        return "''"
    return value


def _entry(head: str, text: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(text, max(width - _COLUMN, 20)) or [""]
    if len(head) + 4 > _COLUMN:
        return [f"  {head}", *(" " * _COLUMN + line for line in wrapped if line)]
    first = f"  {head}".ljust(_COLUMN) + wrapped[0]
    return [first.rstrip(), *(" " * _COLUMN + line for line in wrapped[1:])]
