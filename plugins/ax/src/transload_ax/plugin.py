"""The hook implementations; named by the entry point, imports no Ax."""

from __future__ import annotations

from transload.hookspecs import Register
from transload.plugins import hookimpl

__all__ = ["transload_adapters", "transload_cli_commands", "transload_suggesters"]


@hookimpl
def transload_adapters(register: Register) -> None:
    """Register the adapter."""
    register("ax", "transload_ax.convert:AxAdapter")


@hookimpl
def transload_suggesters(register: Register) -> None:
    """Register the suggester."""
    register("ax", "transload_ax.suggester:AxSuggester")


@hookimpl
def transload_cli_commands(register: Register) -> None:
    """Register ``transload ax``."""
    register("ax", "transload_ax.cli:command")
