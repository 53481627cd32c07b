"""Find, read and call components. The built-in ones are in `utils` and `dist`.

A component is a function with annotations and a docstring that returns an ``AppDef``. It is read in
the same way for the command line, for JSON and for programs.
"""

from __future__ import annotations

from transload.components.call import (
    arguments_of,
    build,
    materialize,
    materialize_appdef,
    read_argument,
    typed_arguments,
)
from transload.components.checks import Finding, check
from transload.components.command import command_app
from transload.components.command_line import component_help
from transload.components.errors import (
    ComponentArgumentError,
    ComponentHelpRequested,
    ComponentInvalid,
    ComponentNotFound,
    NoComponent,
)
from transload.components.finder import (
    as_component,
    broken_components,
    get_component,
    get_components,
    is_batch_script,
    is_file_reference,
)
from transload.components.signature import Component, Parameter, read_component, spelling

__all__ = [
    "Component",
    "ComponentArgumentError",
    "ComponentHelpRequested",
    "ComponentInvalid",
    "ComponentNotFound",
    "Finding",
    "NoComponent",
    "Parameter",
    "arguments_of",
    "as_component",
    "broken_components",
    "build",
    "check",
    "command_app",
    "component_help",
    "get_component",
    "get_components",
    "is_batch_script",
    "is_file_reference",
    "materialize",
    "materialize_appdef",
    "read_argument",
    "read_component",
    "spelling",
    "typed_arguments",
]
