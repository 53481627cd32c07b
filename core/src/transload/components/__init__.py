"""Component functions: reading them, finding them, calling them. The built-in ones are `utils` and `dist`.

A component is a function with annotations and a docstring that returns an ``AppDef``. One reader serves the command
line, JSON and programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.components._call import *
    from transload.components._check import *
    from transload.components._command import *
    from transload.components._decode import *
    from transload.components._errors import *
    from transload.components._finder import *
    from transload.components._help import *
    from transload.components._signature import *

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "_call": "arguments_of build materialize materialize_appdef",
        "_check": "Finding check",
        "_command": "Overrides command_app",
        "_decode": "decode_text decode_value",
        "_errors": "ComponentArgumentError ComponentHelpRequested ComponentInvalid ComponentNotFound "
        "ComponentNotFoundException ComponentValidationException NoComponent",
        "_finder": "as_component broken_components get_component get_components is_file_reference",
        "_help": "component_help",
        "_signature": "Component Parameter read_component spelling",
    },
)
