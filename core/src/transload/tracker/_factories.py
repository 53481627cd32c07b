"""From a tracker's name and configuration to the tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from transload.errors import ConfigError, PluginError, TransloadError
from transload.tracker._base import TrackerBase
from transload.tracker._environ import injected_environment, trackers_in_environ

__all__ = ["BUILTIN_TRACKERS", "TrackerFactory", "build_trackers", "check_trackers", "trackers_from_environ"]

TrackerFactory = Callable[[str | None], TrackerBase]
"""Makes a tracker of its configuration text, or of None."""

BUILTIN_TRACKERS: Final = {"fsspec": "transload.tracker.backend.fsspec:create"}
"""Looked up before any plugin is: a job with a built-in tracker loads no plugin."""


def build_trackers(factory_and_config: Mapping[str, str | None]) -> list[TrackerBase]:
    """Build trackers, in the order given.

    Args:
        factory_and_config: name of a tracker (built in or a plugin's) or ``module:factory`` → its configuration.

    Raises:
        ConfigError: a name is not known, or a tracker cannot be made of its configuration.
    """
    return [_build(name, config) for name, config in factory_and_config.items()]


def trackers_from_environ() -> list[TrackerBase]:
    """Build the trackers that this process's environment names (none: an empty list).

    Raises:
        ConfigError: see ``build_trackers``.
    """
    return build_trackers(trackers_in_environ())


def check_trackers(factory_and_config: Mapping[str, str | None]) -> None:
    """See to it that a job would get its trackers; to be called where an app is submitted.

    Each tracker is built once and thrown away. Building reaches no server and writes nothing.

    Raises:
        ConfigError: names the tracker and tells what is wrong.
    """
    injected_environment(factory_and_config)
    build_trackers(factory_and_config)


def _build(name: str, config: str | None) -> TrackerBase:
    factory = _resolve(name)
    # the configuration may hold credentials: it is not shown
    try:
        tracker = factory(config)
    except TransloadError as exc:
        raise ConfigError(f"tracker {name!r}: {exc}") from exc
    except Exception as exc:
        raise ConfigError(f"tracker {name!r} cannot be made: {type(exc).__name__}: {exc}") from exc
    if not isinstance(tracker, TrackerBase):
        raise ConfigError(f"tracker {name!r}: its factory returned {type(tracker).__name__}, not a TrackerBase")
    return tracker


def _resolve(name: str) -> TrackerFactory:
    reference = BUILTIN_TRACKERS.get(name, name)
    if ":" in reference:
        factory = _import(name, reference)
    else:
        factory = _registered(name)
    if not callable(factory):
        raise ConfigError(f"tracker {name!r}: {type(factory).__name__} is not a factory (a callable of one argument)")
    checked: TrackerFactory = factory
    return checked


def _import(name: str, reference: str) -> Any:
    from pkgutil import resolve_name

    try:
        return resolve_name(reference)
    except Exception as exc:
        raise ConfigError(f"tracker {name!r} cannot be imported: {type(exc).__name__}: {exc}") from exc


def _registered(name: str) -> Any:
    from transload.plugins import get_plugins

    plugins = get_plugins()
    try:
        return plugins.get("trackers", name)
    except KeyError as exc:
        hint = plugins.hint("trackers", name)
        known = ", ".join(plugins.names("trackers"))
        raise ConfigError(f"tracker {name!r}: no such tracker: {hint} (known: {known}, or module:factory)") from exc
    except PluginError as exc:
        raise ConfigError(f"tracker {name!r}: {exc}") from exc
