"""Tracks transload runs in MLflow."""

from __future__ import annotations

from transload_mlflow.tracker import MlflowTracker, create

__version__ = "0.1.0"

__all__ = ["MlflowTracker", "__version__", "create"]
