"""Registers the built-in suggester."""

from __future__ import annotations

from transload.hookspecs import Register
from transload.plugins import hookimpl

__all__ = ["transload_suggesters"]


@hookimpl
def transload_suggesters(register: Register) -> None:
    """Register the suggester that core brings."""
    register("random", "transload.pipelines._search_random:RandomSuggester")
