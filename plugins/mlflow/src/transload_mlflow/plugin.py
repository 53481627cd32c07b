"""The hook implementations, named by the entry point. Importing them does not import MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register

if TYPE_CHECKING:
    from transload.plugins import AppEvent

__all__ = ["transload_app_event", "transload_trackers"]


@hookimpl
def transload_trackers(register: Register) -> None:
    """Register the tracker ``mlflow``."""
    register("mlflow", "transload_mlflow.tracker:create")


@hookimpl
def transload_app_event(event: AppEvent) -> None:
    """Finish the MLflow run of a job that has ended."""
    from transload.specs import is_terminal

    if is_terminal(event.state):
        from transload_mlflow.ending import note_end

        note_end(event)
