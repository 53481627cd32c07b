"""Run jobs as processes of this machine that outlive the program which submitted them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload.schedulers.local.scheduler import *

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"scheduler": "LocalScheduler create_local create_local_cwd"}
)
