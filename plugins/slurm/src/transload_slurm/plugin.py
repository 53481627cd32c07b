"""Registers the Slurm scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins import hookimpl

if TYPE_CHECKING:
    from transload.plugins.hookspecs import Register


@hookimpl
def transload_schedulers(register: Register) -> None:
    """Register ``slurm``."""
    register("slurm", "transload_slurm.scheduler:create_slurm")
