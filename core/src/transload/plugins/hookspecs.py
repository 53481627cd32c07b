"""Every hook of transload, and nothing else.

A plugin is a module (or any object) named by an entry point of the group ``transload``. It
implements any of these functions, each marked with ``transload.plugins.hookimpl``.

The registering hooks get a callable, ``register``. Each call is checked, and a name of a built-in
or of another plugin is refused. A string ``"package.module:attribute"`` may be given in place of a
factory or function. It is imported when it is first used.
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
    """The callable ``register(name, thing)`` that the registering hooks get."""

    def __call__(self, name: str, thing: Callable[..., Any] | str) -> None:
        """Register ``thing`` under ``name``.

        Raises:
            PluginError: if the name is taken or not valid.
        """


@hookspec
def transload_schedulers(register: Register) -> None:
    """Register schedulers.

    Called once per process by the runner, when it first needs schedulers, for all plugins in
    registration order.

    Args:
        register: ``register("slurm", factory)``. The factory is called once per runner. It gets the
            name of the session, and ``name``, if its signature has that, for a cluster with a name
            of its own. It returns a ``transload.schedulers.SchedulerBase``.

    If it raises, the plugin is set aside and shown as broken. Its names raise PluginError when they
    are used.
    """


@hookspec
def transload_trackers(register: Register) -> None:
    """Register trackers.

    Called once per process, where a tracker is first used by name. That is where a job is
    submitted, and in the job.

    Args:
        register: ``register("mlflow", factory)``. The factory is called ``factory(config)`` with
            the configured text or None, and returns a ``transload.tracker.TrackerBase``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_components(register: Register) -> None:
    """Register component functions.

    Called once per process by the component finder, when a name is looked up or components are
    listed.

    Args:
        register: ``register("team.train", function)``. The function returns an ``AppDef``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_named_resources(register: Register) -> None:
    """Register named resources.

    Called once per process, when a name that is not built in is looked up.

    Args:
        register: ``register("team.a100", factory)``. The factory takes nothing and returns a
            ``Resource``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_adapters(register: Register) -> None:
    """Register adapters to orchestrators (workflow engines and the like).

    Called once per process by ``transload.pipelines.get_adapter``, and by ``transload info``.

    Args:
        register: ``register("airflow", factory)``. The factory takes nothing and returns a
            ``transload.pipelines.Adapter``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_suggesters(register: Register) -> None:
    """Register suggesters, which propose the next trials of a search.

    Called once per process by ``transload_search``, when a search names its suggester.

    Args:
        register: ``register("ax", factory)``. The factory is called with the search and returns a
            ``transload_search.Suggester``.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_cli_commands(register: Register) -> None:
    """Register commands of the command line.

    Called by ``transload`` when a command is looked up that is not built in, and for ``--help``.

    Args:
        register: ``register("search", "transload_search.cli:command")``. The thing is a
            ``click.Command``, or a string that names one, which keeps the start of the command line
            fast.

    If it raises, the plugin is set aside and shown as broken.
    """


@hookspec
def transload_before_submit(
    app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]
) -> AppDef | None:
    """Apply a house policy to an app definition before it is converted.

    Called by the runner in every dry-run and submit, one plugin after the other in registration
    order. Each gets the definition that the one before returned.

    Args:
        app: the app definition, which must not be changed in place.
        scheduler: name of the scheduler.
        cfg: the run options that will be used, with the configured ones and defaults.

    Returns:
        The app definition to go on with, or None for no change.

    If it raises, the job is refused. A TransloadError passes, anything else becomes a PluginError.
    """


@hookspec(firstresult=True)
def transload_app_link(handle: str) -> str | None:
    """Return a page about a job.

    Called by orchestrators and by the command line when they show a job. The first result that is
    not None is taken, last registered plugin first.

    Args:
        handle: the handle of the job.

    Returns:
        A URL or the path of a page, or None.

    If it raises, the error is logged and there is no link.
    """


@hookspec
def transload_app_event(event: AppEvent) -> None:
    """Take note that the state of a job changed, for metrics and alerts.

    Called where the change is observed (by a runner that waits, an adapter's poller), at least once
    for each observed state. The same event may come again, from another process too, with the same
    ``event.id`` (handle, state and attempt). ``status``, ``describe`` and ``list`` report none.

    It is called in a thread of its own, for one job after the other in the order of its states, and
    for several jobs at the same time. Who waits for the job hears of the state afterwards.

    Args:
        event: handle, state, attempt, status and time (seconds since the epoch).

    If it raises, the error is logged, and the job goes on.
    """
