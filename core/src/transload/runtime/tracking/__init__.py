"""Results: how a job hands small values back to whoever launched it.

Needs only the standard library, and fsspec for a base that is not a path.
"""

from __future__ import annotations

from transload._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.runtime.tracking._names import *
    from transload.runtime.tracking._steps import *
    from transload.runtime.tracking._stores import *
    from transload.runtime.tracking.api import *
    from transload.runtime.tracking.api import open_store as open_store
    from transload.runtime.tracking.api import read_bodies as read_bodies

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "_names": "app_folder given_base local_path output_folder",
        "_steps": "finite_number read_curves read_steps",
        "_stores": "Entry LARGEST Store",
        "api": "ENV_TRANSLOAD_TRACKER_BASE FsspecResultTracker KeyType ResultTracker ResultType TrackingError "
        "open_store read_bodies",
    },
)
