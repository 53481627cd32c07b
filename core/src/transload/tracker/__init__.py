"""Keep metadata, artifacts and lineage of runs in one or more trackers.

An application uses ``AppRun.run_from_env()``. To read runs, build a tracker by name
(``build_trackers``) or directly, for example ``FsspecTracker(None, "s3://bucket/runs")``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins.lazy import lazy_names
from transload.tracker import api
from transload.tracker.api import *
from transload.tracker.fsspec import FsspecTracker

if TYPE_CHECKING:
    from transload.compat.torchx import app_run_from_env

__all__ = ["FsspecTracker", "app_run_from_env"]
__all__ += api.__all__

# a name for those who come from TorchX, which is imported when asked for
__getattr__, __dir__, _ = lazy_names(__name__, {".compat.torchx": "app_run_from_env"})
