"""The plugin that registers the built-in components, through the hook that all others use."""

from __future__ import annotations

from transload.components._builtins import BUILTIN_COMPONENTS
from transload.hookspecs import Register
from transload.plugins import hookimpl


@hookimpl
def transload_components(register: Register) -> None:
    """Register ``utils.*`` and ``dist.*``; each is imported when it is first used."""
    for name, reference in BUILTIN_COMPONENTS.items():
        register(name, reference)
