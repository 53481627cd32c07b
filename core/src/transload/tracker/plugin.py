"""Registers the built-in trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins import hookimpl

if TYPE_CHECKING:
    from transload.hookspecs import Register

__all__ = ["transload_trackers"]


@hookimpl
def transload_trackers(register: Register) -> None:
    """Register the trackers that core brings."""
    from transload.tracker.api import BUILTIN_TRACKERS  # every run loads this module, few have a tracker

    for name, factory in BUILTIN_TRACKERS.items():
        register(name, factory)
