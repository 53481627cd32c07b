"""Registers the Docker scheduler under its two names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins import hookimpl

if TYPE_CHECKING:
    from transload.plugins.hookspecs import Register


@hookimpl
def transload_schedulers(register: Register) -> None:
    """Register ``docker`` and ``local_docker``."""
    register("docker", "transload_docker.scheduler:create_docker")
    register("local_docker", "transload_docker.scheduler:create_local_docker")
