"""The hook implementations, named by the entry point."""

from __future__ import annotations

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register

__all__ = ["transload_cli_commands", "transload_suggesters"]


@hookimpl
def transload_suggesters(register: Register) -> None:
    """Register the built-in suggester ``random``."""
    register("random", "transload_search.random_suggester:RandomSuggester")


@hookimpl
def transload_cli_commands(register: Register) -> None:
    """Register ``transload search``."""
    register("search", "transload_search.cli:command")
