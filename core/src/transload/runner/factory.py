"""Make runners with all that is installed, or return the one that a process shares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from transload.runner.api import Runner
from transload.runner.clusters import Cluster
from transload.runner.job import Job
from transload.runtime.forks import fork_lock

__all__ = ["default_runner", "get_runner", "shared_runner"]

SESSION: Final = "transload"
"""The session of the command line, and of programs that name none."""

_runners: dict[tuple[object, ...], Runner] = {}
_runners_lock = fork_lock()


def get_runner(
    name: str | None = None,
    component_defaults: Mapping[str, Mapping[str, str]] | None = None,
    *,
    inherit_env: bool = True,
    clusters: Iterable[Cluster] = (),
    **scheduler_params: object,
) -> Runner:
    """Return a runner with all schedulers that are built in or installed as plugins.

    Args:
        name: name of the session. The default is ``transload``.
        component_defaults: component → argument → default, in the form of the command line.
        inherit_env: as of `Runner`.
        clusters: as of `Runner`.
        scheduler_params: keyword arguments for the scheduler factories, each of which gets those
            that it declares.

    Raises:
        ConfigError: for an argument that no scheduler here takes.

    Example:
        >>> with get_runner() as runner:  # doctest: +SKIP
        ...     handle = runner.run_component("utils.echo", ["--msg", "hello"])
        ...     print(runner.wait(handle).state)
        SUCCEEDED
    """
    return Runner(
        name or SESSION,
        component_defaults=component_defaults,
        scheduler_params=scheduler_params,
        inherit_env=inherit_env,
        clusters=clusters,
    )


def shared_runner(
    session: str,
    *,
    inherit_env: bool = False,
    clusters: Iterable[Cluster] = (),
    secret_sources: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
    **scheduler_params: object,
) -> Runner:
    """Return the runner of a session that this process shares. Do not close it.

    Args:
        session: name of the session in the handles.
        inherit_env: give jobs the whole environment of this process. By default they get only an
            allow-list of it.
        clusters: clusters beside those of the settings.
        secret_sources: kind → what finds a value. It is the same in every call of a session.
        scheduler_params: keyword arguments for the scheduler factories.
    """
    params = repr(sorted(scheduler_params.items()))
    key = (os.getpid(), session, inherit_env, params, os.environ.get("TRANSLOAD_HOME"))
    with _runners_lock:
        runner = _runners.get(key)
        if runner is None:
            runner = _runners[key] = Runner(
                session,
                scheduler_params=scheduler_params,
                inherit_env=inherit_env,
                secret_sources=secret_sources,
            )
    return runner.with_clusters(*clusters)


def default_runner() -> Runner:
    """Return the runner that this process shares, of the session of the command line."""
    return shared_runner(SESSION, inherit_env=True)


Job.default_runner = staticmethod(default_runner)
