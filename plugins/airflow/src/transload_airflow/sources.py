"""What a user may hand to ``convert``, read without Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from transload.errors import UnsupportedFeature
from transload.pipelines import Launch, split_overrides

if TYPE_CHECKING:
    from transload.pipelines import LaunchSettings
    from transload_search import Search

LAUNCH_FIELDS: Final = {
    "component_args": "args",
    "scheduler": "scheduler",
    "cfg": "cfg",
    "workspace": "workspace",
    "parent_run_id": "parent_run_id",
    "tracker_base": "tracker_base",
    "pass_env": "pass_env",
    "environment": "environment",
}
"""Options of an operator that say how to launch something → what a Launch calls them."""


def is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search. Nothing is without transload-search, which is an extra."""
    return type(source).__module__.startswith("transload_search.")


def launch_of(source: object, options: Mapping[str, Any]) -> tuple[Launch, dict[str, Any]]:
    """Return what a source launches, and the options that only an operator has.

    Args:
        source: an AppDef, its JSON, a component (name or function), or a Launch.
        options: of the operator.

    Raises:
        UnsupportedFeature: for a Search.
        SpecError: if the source is none of these, or ``overrides`` has an unknown name.
    """
    if is_search(source):
        raise UnsupportedFeature(
            "source: a Search needs a group of tasks: give it to search_group", "source"
        )
    overrides, others = split_overrides(options)
    settings: LaunchSettings = {}
    other_options = {}
    for name, value in others.items():
        if name in LAUNCH_FIELDS:
            settings[LAUNCH_FIELDS[name]] = value  # type: ignore[literal-required]
        else:
            other_options[name] = value
    return Launch.of(source, **settings).with_overrides(overrides), other_options
