"""Adapters: one interface to every host."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

from transload.errors import ConfigError, PluginError
from transload.pipelines.states import StateMap


@dataclass(frozen=True, slots=True)
class AdapterCapabilities:
    """What a host can express.

    Args:
        roles: apps of several roles.
        replicas: several replicas of a role.
        retries: the scheduler's retries inside one unit of the host.
        mounts: mounts of a role.
        ports: ports of a role.
        launch_parameters: an upstream's output can set image, replicas, resources.
        logs: replica logs appear in the host's own log.
        results: results come back as the host's own values.
        cancel: a kill in the host cancels the app.
        reattach: a restarted host finds its app again.
        deferred: no worker slot is held while waiting.
        searches: a Search becomes a sub-pipeline.
        notes: capability → what to know about it.
    """

    roles: bool = True
    replicas: bool = True
    retries: bool = True
    mounts: bool = True
    ports: bool = True
    launch_parameters: bool = True
    logs: bool = True
    results: bool = True
    cancel: bool = True
    reattach: bool = True
    deferred: bool = False
    searches: bool = False
    notes: dict[str, str] = field(default_factory=dict)


@runtime_checkable
class Adapter(Protocol):
    """Turns apps into units of work of one host. Reading its attributes imports no host."""

    name: str
    state_map: StateMap[Any]
    capabilities: AdapterCapabilities

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return the host's own object for an app: an operator, a component, a task, a runner.
        Pure: nothing runs.

        Args:
            source: an AppDef, its JSON, a component (name or function), or a `Launch`.
            host_options: the host's own arguments, and those of `ExecutionOptions`.

        Raises:
            UnsupportedFeature: for what the host cannot express, by field name.
            SpecError: if the source is wrong.
        """

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return what would be made and submitted, as text for a person. Arguments and errors as in
        `convert`.
        """


def adapters() -> list[str]:
    """Return the names of the adapters that are installed."""
    from transload.plugins import get_plugins

    return get_plugins().names("adapters")


def get_adapter(name: str) -> Adapter:
    """Return the adapter of that name.

    Raises:
        ConfigError: if there is none; the nearest name is suggested.
        PluginError: if its plugin is broken, or what it made is no adapter.
    """
    from transload.plugins import get_plugins

    plugins = get_plugins()
    entry = plugins.registry("adapters").get(name)
    if entry is None:
        raise ConfigError(f"adapter {name!r} does not exist: {plugins.hint('adapters', name)}")
    factory = plugins.get("adapters", name)
    try:
        adapter = factory()
    except Exception as exc:
        raise PluginError(
            f"adapter {name!r} cannot be made: {type(exc).__name__}: {exc}", entry.plugin
        ) from exc
    if (
        not isinstance(adapter, Adapter)
        or not isinstance(adapter.state_map, StateMap)
        or not isinstance(adapter.capabilities, AdapterCapabilities)
    ):
        message = (
            f"adapter {name!r}: {type(adapter).__name__} lacks part of transload.pipelines.Adapter"
        )
        raise PluginError(message, entry.plugin)
    return adapter


def describe_adapters() -> list[dict[str, Any]]:
    """Return what each installed adapter can express, broken ones included.

    Of each ``name``, ``plugin``, ``status`` (``ready``, or why it cannot be used),
    ``capabilities``, ``notes`` to them,
    and ``states``: AppState → the host's state.
    """
    from transload.plugins import get_plugins

    rows = []
    for name, entry in sorted(get_plugins().registry("adapters").items()):
        row = {
            "name": name,
            "plugin": entry.plugin,
            "status": "ready",
            "capabilities": {},
            "notes": {},
            "states": {},
        }
        try:
            adapter = get_adapter(name)
        except PluginError as exc:
            row["status"] = str(exc)
        else:
            able = asdict(adapter.capabilities)
            row |= {
                "notes": able.pop("notes"),
                "capabilities": able,
                "states": adapter.state_map.names(),
            }
        rows.append(row)
    return rows
