"""Return small values, the results, from a job to whoever launched it.

Needs only the standard library, and fsspec for a base that is not a path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload.runtime.tracking.api import *
    from transload.runtime.tracking.api import open_store as open_store
    from transload.runtime.tracking.api import read_bodies as read_bodies
    from transload.runtime.tracking.names import *
    from transload.runtime.tracking.steps import *
    from transload.runtime.tracking.stores import *

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "names": "app_folder given_base local_path output_folder",
        "steps": "finite_number read_curves read_steps",
        "stores": "Entry LARGEST LocalStore Store",
        "api": "ENV_TRANSLOAD_TRACKER_BASE FsspecResultTracker KeyType ResultTracker ResultType ResultsGone "
        "TrackingError open_store read_bodies",
    },
)
