"""Component functions: reading them, finding them, calling them. The built-in ones are `utils` and
`dist`.

A component is a function with annotations and a docstring that returns an ``AppDef``. One reader
serves the command line, JSON and programs.
"""

from __future__ import annotations

from transload.components.call import arguments_of, build, materialize, materialize_appdef
from transload.components.checks import Finding, check
from transload.components.command import Overrides, command_app
from transload.components.decode import decode_text, decode_value
from transload.components.errors import (
    ComponentArgumentError,
    ComponentHelpRequested,
    ComponentInvalid,
    ComponentNotFound,
    ComponentNotFoundException,
    ComponentValidationException,
    NoComponent,
)
from transload.components.finder import (
    as_component,
    broken_components,
    get_component,
    get_components,
    is_file_reference,
)
from transload.components.help import component_help
from transload.components.signature import Component, Parameter, read_component, spelling

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
