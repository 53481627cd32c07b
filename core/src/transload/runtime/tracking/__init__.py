"""Results: how a job hands small values back to whoever launched it.

Needs only the standard library, and fsspec for a base that is not a path.
"""

from __future__ import annotations

from transload.runtime.tracking._names import app_folder, given_base, output_folder
from transload.runtime.tracking._steps import read_curves, read_steps
from transload.runtime.tracking._stores import Store
from transload.runtime.tracking.api import (
    ENV_TRANSLOAD_TRACKER_BASE,
    FsspecResultTracker,
    KeyType,
    ResultTracker,
    ResultType,
    TrackingError,
    open_store,
    read_bodies,
)

__all__ = [
    "ENV_TRANSLOAD_TRACKER_BASE",
    "FsspecResultTracker",
    "KeyType",
    "ResultTracker",
    "ResultType",
    "Store",
    "TrackingError",
    "app_folder",
    "given_base",
    "open_store",
    "output_folder",
    "read_bodies",
    "read_curves",
    "read_steps",
]
