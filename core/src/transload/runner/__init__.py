"""The runner: submits an app to a scheduler, and tells what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.runner._get_runner import *
    from transload.runner._launch import *
    from transload.runner._results import *
    from transload.runner._runner import *
    from transload.runner.clusters import *
    from transload.runner.config import *

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "_get_runner": "get_runner",
        "_launch": "Launch",
        "_results": "AppResults NoSuchResult",
        "_runner": "Runner",
        "clusters": "Cluster",
        "config": "Setting Settings load_settings",
    },
)
