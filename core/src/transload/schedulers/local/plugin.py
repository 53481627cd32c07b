"""Registers the local scheduler under its two names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins import hookimpl

if TYPE_CHECKING:
    from transload.hookspecs import Register


@hookimpl
def transload_schedulers(register: Register) -> None:
    """Register ``local`` and ``local_cwd``."""
    register("local", "transload.schedulers.local.scheduler:create_local")
    register("local_cwd", "transload.schedulers.local.scheduler:create_local_cwd")
