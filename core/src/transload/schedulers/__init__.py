"""Schedulers: the contract that a backend keeps, and the local one. Nothing is imported until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    # lazy: the local scheduler's supervisor lives below this package and must start in milliseconds
    if name in ("FedWatch", "Feeder"):
        from transload.schedulers import feeding

        return getattr(feeding, name)
    if name in __all__:
        from transload.schedulers import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
