"""Schedulers: the contract that a backend keeps, and the local one. Nothing is imported until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.schedulers.api import (
        AppDescription,
        Capabilities,
        Change,
        ListAppResponse,
        LogPage,
        Reach,
        SchedulerBase,
        SchedulerFactory,
        Stream,
        Submission,
        Watch,
        refuse_unsupported,
        request_json,
        unsupported_fields,
    )
    from transload.schedulers.feeding import FedWatch, Feeder

__all__ = [
    "AppDescription",
    "Capabilities",
    "Change",
    "FedWatch",
    "Feeder",
    "ListAppResponse",
    "LogPage",
    "Reach",
    "SchedulerBase",
    "SchedulerFactory",
    "Stream",
    "Submission",
    "Watch",
    "refuse_unsupported",
    "request_json",
    "unsupported_fields",
]

_FEEDING: Final = ("FedWatch", "Feeder")

# lazy: the local scheduler's supervisor lives below this package and must start in milliseconds
__getattr__, __dir__ = lazy_names(
    __name__, {"api": tuple(name for name in __all__ if name not in _FEEDING), "feeding": _FEEDING}
)
