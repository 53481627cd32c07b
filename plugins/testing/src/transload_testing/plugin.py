"""Registers the scripted scheduler."""

from __future__ import annotations

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register

__all__ = ["transload_schedulers"]


@hookimpl
def transload_schedulers(register: Register) -> None:
    """Register the scheduler that plays scripts.

    It is named by a string, so that it costs nothing until it is asked for.
    """
    register("scripted", "transload_testing.scripted:create_scheduler")
