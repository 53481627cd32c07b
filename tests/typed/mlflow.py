"""What a user's type checker must see: read by mypy against the installed wheel, never run."""

from __future__ import annotations

from transload.tracker import TrackerBase
from transload_mlflow import MlflowTracker

tracker: TrackerBase = MlflowTracker("sqlite:///runs.db")
