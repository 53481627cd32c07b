"""Component functions: reading them, finding them, calling them. The built-in ones are `utils` and `dist`.

A component is a function with annotations and a docstring that returns an ``AppDef``. One reader serves the command
line, JSON and programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.components._call import arguments_of, build, materialize, materialize_appdef
    from transload.components._check import Finding, check
    from transload.components._command import Overrides, command_app
    from transload.components._decode import decode_text, decode_value
    from transload.components._errors import (
        ComponentArgumentError,
        ComponentHelpRequested,
        ComponentInvalid,
        ComponentNotFound,
        ComponentNotFoundException,
        ComponentValidationException,
        NoComponent,
    )
    from transload.components._finder import (
        as_component,
        broken_components,
        get_component,
        get_components,
        is_file_reference,
    )
    from transload.components._help import component_help
    from transload.components._signature import Component, Parameter, read_component, spelling

__all__ = [
    "Component",
    "ComponentArgumentError",
    "ComponentHelpRequested",
    "ComponentInvalid",
    "ComponentNotFound",
    "ComponentNotFoundException",
    "ComponentValidationException",
    "Finding",
    "NoComponent",
    "Overrides",
    "Parameter",
    "arguments_of",
    "as_component",
    "broken_components",
    "build",
    "check",
    "command_app",
    "component_help",
    "decode_text",
    "decode_value",
    "get_component",
    "get_components",
    "is_file_reference",
    "materialize",
    "materialize_appdef",
    "read_component",
    "spelling",
]

_HOMES: Final = {
    "_call": ("arguments_of", "build", "materialize", "materialize_appdef"),
    "_check": ("Finding", "check"),
    "_command": ("Overrides", "command_app"),
    "_decode": ("decode_text", "decode_value"),
    "_errors": (
        "ComponentArgumentError",
        "ComponentHelpRequested",
        "ComponentInvalid",
        "ComponentNotFound",
        "ComponentNotFoundException",
        "ComponentValidationException",
        "NoComponent",
    ),
    "_finder": ("as_component", "broken_components", "get_component", "get_components", "is_file_reference"),
    "_help": ("component_help",),
    "_signature": ("Component", "Parameter", "read_component", "spelling"),
}


__getattr__, __dir__ = lazy_names(__name__, _HOMES)
