"""Registers the Kubernetes scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins import hookimpl

if TYPE_CHECKING:
    from transload.plugins.hookspecs import Register


@hookimpl
def transload_schedulers(register: Register) -> None:
    """Register ``kubernetes``."""
    register("kubernetes", "transload_kubernetes.scheduler:create_scheduler")
