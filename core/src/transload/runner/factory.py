"""A runner with all that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transload.runner.api import Runner

__all__ = ["get_runner"]


def get_runner(
    name: str | None = None,
    component_defaults: Mapping[str, Mapping[str, str]] | None = None,
    **scheduler_params: Any,
) -> Runner:
    """Return a runner with all schedulers that are built in or installed as plugins.

    Args:
        name: name of the session; default ``transload``.
        component_defaults: component → argument → default, in the form of the command line.
        scheduler_params: keyword arguments for the scheduler factories, each of which gets those
            that it declares; ``inherit_env`` and ``clusters`` are the runner's own, see `Runner`.

    Raises:
        ConfigError: for an argument that no scheduler here takes.

    Example:
        >>> with get_runner() as runner:  # doctest: +SKIP
        ...     handle = runner.run_component("utils.echo", ["--msg", "hello"])
        ...     print(runner.wait(handle).state)
        SUCCEEDED
    """
    own = {
        key: scheduler_params.pop(key)
        for key in ("inherit_env", "clusters")
        if key in scheduler_params
    }
    return Runner(name or "transload", None, component_defaults, scheduler_params, **own)
