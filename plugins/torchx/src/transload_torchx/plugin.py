"""The hook implementation, named by the entry point."""

from __future__ import annotations

from transload.hookspecs import Register
from transload.plugins import hookimpl

__all__ = ["transload_cli_commands"]


@hookimpl
def transload_cli_commands(register: Register) -> None:
    """Register ``transload migrate``."""
    register("migrate", "transload_torchx.cli:command")
