"""The hook implementations; named by the entry point, imports no host."""

from __future__ import annotations

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register


@hookimpl
def transload_adapters(register: Register) -> None:
    """Register the adapter."""
    register("prefect", "transload_prefect.adapter:PrefectAdapter")
