"""An app from a component: its arguments, typed or given by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transload.components import Component, arguments_of, build, materialize_appdef
from transload.specs import AppDef


def component_arguments(
    component: Component, given: Sequence[str] | Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a component by name, defaults filled in."""
    if isinstance(given, Mapping):
        own = {item.name: item.default for item in component.parameters if not item.required}
        return {**own, **defaults, **given}
    return arguments_of(component, given, defaults)


def app_of_component(
    component: Component, given: Sequence[str] | Mapping[str, Any], defaults: Mapping[str, Any]
) -> AppDef:
    """Return the app that a component makes of arguments typed or given by name."""
    if isinstance(given, Mapping):
        return build(component, given, defaults=defaults)
    return materialize_appdef(component, given, defaults)
