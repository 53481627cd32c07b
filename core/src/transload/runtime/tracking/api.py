"""The names of ``transload.runtime.tracking`` under the module path that TorchX users import them from."""

from __future__ import annotations

from transload.runtime.tracking._errors import TrackingError
from transload.runtime.tracking._tracker import (
    ENV_TRANSLOAD_TRACKER_BASE,
    FsspecResultTracker,
    KeyType,
    ResultTracker,
    ResultType,
)

__all__ = [
    "ENV_TRANSLOAD_TRACKER_BASE",
    "FsspecResultTracker",
    "KeyType",
    "ResultTracker",
    "ResultType",
    "TrackingError",
]
