"""The hook implementations, which the entry point names. They import no Ax."""

from __future__ import annotations

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register

__all__ = ["transload_adapters", "transload_suggesters"]


@hookimpl
def transload_adapters(register: Register) -> None:
    """Register the adapter."""
    register("ax", "transload_ax.adapter:adapter")


@hookimpl
def transload_suggesters(register: Register) -> None:
    """Register the suggesters."""
    register("ax", "transload_ax.suggester:AxSuggester")
    register("ax-quality", "transload_ax.suggester:AxQualitySuggester")
    register("ax-sobol", "transload_ax.suggester:AxSobolSuggester")
