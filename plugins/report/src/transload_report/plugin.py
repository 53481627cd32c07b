"""The hook implementations, named by the entry point. Importing them loads no template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register

if TYPE_CHECKING:
    from transload.plugins import AppEvent

__all__ = ["transload_app_event", "transload_app_link", "transload_cli_commands"]


@hookimpl
def transload_cli_commands(register: Register) -> None:
    """Register ``transload report``."""
    register("report", "transload_report.cli:command")


@hookimpl
def transload_app_link(handle: str) -> str | None:
    """Return the link to a job's page, or None if no page was written."""
    from transload_report.auto import link

    return link(handle)


@hookimpl
def transload_app_event(event: AppEvent) -> None:
    """Write a page when a job is submitted or ends, if the settings ask for it."""
    from transload_report.auto import note

    note(event)
