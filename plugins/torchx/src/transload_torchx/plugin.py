"""The hook implementation, named by the entry point."""

from __future__ import annotations

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register

__all__ = ["transload_cli_commands"]


@hookimpl
def transload_cli_commands(register: Register) -> None:
    """Register ``transload migrate``."""
    register("migrate", "transload_torchx.cli:command")
