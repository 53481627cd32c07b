"""Schedulers: the contract that a backend keeps, and the local one. Nothing is imported until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transload.schedulers.api import (
        AppDescription,
        Capabilities,
        ListAppResponse,
        LogPage,
        Reach,
        Scheduler,
        SchedulerFactory,
        Stream,
        Submission,
        Watch,
        refuse_unsupported,
        unsupported_fields,
    )
    from transload.schedulers.feeding import FedWatch, Feeder
    from transload.schedulers.log_lines import line_search

__all__ = [
    "AppDescription",
    "Capabilities",
    "FedWatch",
    "Feeder",
    "ListAppResponse",
    "LogPage",
    "Reach",
    "Scheduler",
    "SchedulerFactory",
    "Stream",
    "Submission",
    "Watch",
    "line_search",
    "refuse_unsupported",
    "unsupported_fields",
]


def __getattr__(name: str) -> Any:
    # lazy: the local scheduler's supervisor lives below this package and must start in milliseconds
    if name in ("FedWatch", "Feeder"):
        from transload.schedulers import feeding

        return getattr(feeding, name)
    if name == "line_search":
        from transload.schedulers import log_lines

        return log_lines.line_search
    if name in __all__:
        from transload.schedulers import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
