"""Schedulers: the contract that a backend keeps, and the local one. Nothing is imported until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.schedulers.api import *
    from transload.schedulers.feeding import *

# lazy: the local scheduler's supervisor lives below this package and must start in milliseconds
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "api": "AppDescription Capabilities Change JobFiles ListAppResponse LogPage Reach SchedulerBase "
        "SchedulerFactory Stream Submission Watch check_replica damaged_message refuse_unsupported request_json",
        "feeding": "FedWatch Feeder",
    },
)
