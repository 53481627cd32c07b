"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from transload.tracker import TrackerBase
from transload_mlflow import MlflowTracker

tracker: TrackerBase = MlflowTracker("sqlite:///runs.db")
