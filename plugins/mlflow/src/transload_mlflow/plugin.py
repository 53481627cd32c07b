"""What transload loads: names only, no MLflow."""

from __future__ import annotations

from transload.hookspecs import Register
from transload.plugins import hookimpl

__all__ = ["transload_trackers"]


@hookimpl
def transload_trackers(register: Register) -> None:
    """Register the tracker ``mlflow``."""
    register("mlflow", "transload_mlflow.tracker:create")
