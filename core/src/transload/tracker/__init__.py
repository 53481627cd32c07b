"""Keep metadata, artifacts and lineage of runs in one or more trackers.

An application uses ``AppRun.run_from_env()``. To read runs, build a tracker by name
(``build_trackers``) or directly, for example ``FsspecTracker(None, "s3://bucket/runs")``.
"""

from __future__ import annotations

from transload.tracker import api
from transload.tracker.api import *
from transload.tracker.fsspec import FsspecTracker

__all__ = ["FsspecTracker"]
__all__ += api.__all__
