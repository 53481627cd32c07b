"""The hook implementations, which the entry point names. They import no Airflow."""

from __future__ import annotations

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register


@hookimpl
def transload_adapters(register: Register) -> None:
    """Register the adapter."""
    register("airflow", "transload_airflow.adapter:adapter")
