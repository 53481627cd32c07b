"""Every hook of transload, and nothing else.

A plugin is a module (or any object) named by an entry point of the group ``transload``; it
implements any of these functions, each marked with ``transload.plugins.hookimpl``. The
``register_*`` style hooks hand over a callable; what is registered is checked at that call, and
adds: a name that is taken by a built-in or another plugin is refused. Wherever a factory or
function is registered, a string ``"package.module:attribute"`` may be given in its place; it is
imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from transload.plugins.events import AppEvent
    from transload.specs import AppDef, CfgVal

__all__ = ["Register"]


hookspec = pluggy.HookspecMarker("transload")


class Register(Protocol):
    """What the registering hooks hand over: ``register(name, thing)``."""

    def __call__(self, name: str, thing: Callable[..., Any] | str) -> None:
        """Register ``thing`` under ``name``; raises PluginError if the name is taken or not
        valid.
        """


@hookspec
def transload_schedulers(register: Register) -> None:
    """Register schedulers.

    Called once per process by the runner, when schedulers are first asked for; all plugins, in
    registration order.

    Args:
        register: ``register("slurm", factory)``; the factory is called with the name of the session
            and those of the runner's parameters that its signature names, once per runner, and
            returns a ``transload.schedulers.SchedulerBase``.

    If it raises, the plugin is set aside and shown as broken; its names raise PluginError when
    asked for.
    """


@hookspec
def transload_trackers(register: Register) -> None:
    """Register trackers.

    Called once per process, where a tracker is first asked for by name: where an app is submitted,
    and in the job.

    Args:
        register: ``register("mlflow", factory)``; the factory is called ``factory(config)`` with
            the configured text or None, and returns a ``transload.tracker.TrackerBase``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_components(register: Register) -> None:
    """Register component functions.

    Called once per process by the component finder, when a name is looked up or components are
    listed.

    Args:
        register: ``register("team.train", function)``; the function returns an ``AppDef``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_named_resources(register: Register) -> None:
    """Register named resources.

    Called once per process, when a name that is not built in is looked up.

    Args:
        register: ``register("team.a100", factory)``; the factory takes nothing and returns a
            ``Resource``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_adapters(register: Register) -> None:
    """Register adapters to hosts (workflow engines and the like).

    Called once per process by ``transload.pipelines.get_adapter``, and by ``transload info``.

    Args:
        register: ``register("airflow", factory)``; the factory takes nothing and returns a
            ``transload.pipelines.Adapter``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_suggesters(register: Register) -> None:
    """Register suggesters, which propose the next trials of a search.

    Called once per process by ``transload_search``, when a search names its suggester.

    Args:
        register: ``register("ax", factory)``; the factory is called with the search and returns a
            ``transload_search.Suggester``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_cli_commands(register: Register) -> None:
    """Register commands of the command line.

    Called by ``transload`` when a command is looked up that is not built in, and for ``--help``.

    Args:
        register: ``register("kfp", "transload_kfp.cli:command")``; the thing is a
            ``click.Command``, or a string that names one, which keeps the start of the command line
            fast.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_before_submit(
    app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]
) -> AppDef | None:
    """Apply a house policy to an app before it is converted.

    Called by the runner in every dry-run and submit, one plugin after the other in registration
    order, each with the app as the one before left it.

    Args:
        app: the app; it must not be changed in place.
        scheduler: name of the scheduler.
        cfg: the run options as they will be used: those given and those configured, defaults filled
            in.

    Returns:
        The app to go on with, or None for no change.

    If it raises, the app is refused: a TransloadError passes as it is, anything else becomes a
    PluginError.
    """


@hookspec(firstresult=True)
def transload_app_link(handle: str) -> str | None:
    """Return a page about an app.

    Called by hosts and by the command line when they show an app; the first result that is not None
    is taken, last registered plugin first.

    Args:
        handle: the app handle.

    Returns:
        A URL or the path of a page, or None.

    If it raises, the error is logged and there is no link.
    """


@hookspec
def transload_app_event(event: AppEvent) -> None:
    """Take note that the state of an app changed; for metrics and alerts.

    Called by whoever observes the change (a runner that waits, an adapter's poller), at least once
    for each state observed; the same event may come again, from another process too: ``event.id``
    (handle, state and attempt) tells. Who only asks (``status``, ``describe``, ``list``) tells of
    nothing.

    Args:
        event: handle, state, attempt, status and time (seconds since the epoch).

    If it raises, the error is logged; the app is not touched.
    """
