"""Define what an adapter registers, and list the adapters that are installed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transload.errors import ConfigError, PluginError
from transload.pipelines.identity import Identity
from transload.pipelines.states import StateMap
from transload.pipelines.step import Step
from transload.runner.api import host_runner

if TYPE_CHECKING:
    from transload.pipelines.options import ExecutionOptions
    from transload.runner import Launch, Runner


def no_advice(schedulers: Collection[str]) -> Iterable[str]:
    """Return nothing, which is what most adapters advise."""
    return ()


@dataclass(frozen=True)
class Adapter:
    """What a plugin registers for an orchestrator, and `get_adapter` returns.

    Reading it imports no orchestrator.

    Args:
        name: name of the orchestrator, in small letters. It is the session of all handles.
        convert: ``convert(source, **host_options)`` returns the orchestrator's own object, such as
            an operator, a component or a task. Nothing runs. ``source`` is an AppDef, its JSON, a
            component (name or function), a `Launch`, or a search where the host has sub-pipelines.
            It raises UnsupportedFeature for what the orchestrator cannot express, by field name,
            and SpecError if the source is wrong.
        dry_run: with the same arguments, returns what would be made and submitted, as text for a
            person.
        states: AppState → the orchestrator's state.
        advice: returns what `transload doctor` advises about the orchestrator's settings, given
            the names of the schedulers that the settings lead to.
    """

    name: str
    convert: Callable[..., Any]
    dry_run: Callable[..., str]
    states: StateMap[Any]
    advice: Callable[[Collection[str]], Iterable[str]] = no_advice


def dry_run(
    host: str,
    launch: Launch,
    options: ExecutionOptions | None = None,
    *,
    context_args: Mapping[str, Any] | None = None,
    inherit_env: bool = False,
    runner: Runner | None = None,
) -> str:
    """Return the request that an orchestrator would submit, as text for a person.

    It touches nothing outside of this process. The arguments are those of `Step` and
    ``transload.runner.api.host_runner``. ``runner`` is another one than the orchestrator's own.

    Raises:
        SpecError: if the job is wrong, or the scheduler cannot express it.
        ConfigError: for an unknown scheduler or option.
    """
    step = _StepToShow(
        launch,
        options,
        runner=runner or host_runner(host, inherit_env=inherit_env),
        arguments=context_args,
    )
    return repr(step.plan())


class _StepToShow(Step):
    """A step that is only shown, of which there is no run."""

    def identity(self) -> Identity:
        """Return a name of its own."""
        return Identity(self.runner.name(), ("dry-run",), (self.need_launch().name,))


def adapters() -> list[str]:
    """Return the names of the adapters that are installed."""
    from transload.plugins import get_plugins

    return get_plugins().names("adapters")


def get_adapter(name: str) -> Adapter:
    """Return the adapter of that name.

    Raises:
        ConfigError: if there is none. The nearest name is suggested.
        PluginError: if its plugin is broken, or what it made is no adapter.
    """
    from transload.plugins import get_plugins

    plugins = get_plugins()
    entry = plugins.registry("adapters").get(name)
    if entry is None:
        raise ConfigError(f"adapter {name!r} does not exist: {plugins.hint('adapters', name)}")
    factory = plugins.get("adapters", name)
    try:
        made = factory()
    except Exception as exc:
        raise PluginError(
            f"adapter {name!r} cannot be made: {type(exc).__name__}: {exc}", entry.plugin
        ) from exc
    if not isinstance(made, Adapter) or not isinstance(made.states, StateMap):
        raise PluginError(
            f"adapter {name!r}: {type(made).__name__} is no transload.pipelines.Adapter with a "
            "StateMap",
            entry.plugin,
        )
    return made


def describe_adapters() -> list[dict[str, Any]]:
    """Return the installed adapters, broken ones included.

    Of each ``name``, ``plugin``, ``status`` (``installed``, or why it cannot be used), and
    ``states``: AppState → the orchestrator's state.
    """
    from transload.plugins import get_plugins

    rows = []
    for name, entry in sorted(get_plugins().registry("adapters").items()):
        row: dict[str, Any] = {
            "name": name,
            "plugin": entry.plugin,
            "status": "installed",
            "states": {},
        }
        try:
            row["states"] = get_adapter(name).states.names()
        except PluginError as exc:
            row["status"] = str(exc)
        rows.append(row)
    return rows
