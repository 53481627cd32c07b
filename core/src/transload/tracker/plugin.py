"""Registers the built-in trackers."""

from __future__ import annotations

from transload.hookspecs import Register
from transload.plugins import hookimpl
from transload.tracker._factories import BUILTIN_TRACKERS

__all__ = ["transload_trackers"]


@hookimpl
def transload_trackers(register: Register) -> None:
    """Register the trackers that core brings."""
    for name, factory in BUILTIN_TRACKERS.items():
        register(name, factory)
