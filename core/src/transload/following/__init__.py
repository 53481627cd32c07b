"""Following apps until they end: their states, and their logs line by line, on the contract of a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transload.following.follower import Feed, Follower, get_follower
    from transload.following.lines import LineFilter, LogReader, ReplicaLogs, last_lines, last_words, log_lines, times
    from transload.following.patience import Patience, longer
    from transload.following.workers import LogSubscription, Observation, Subscription

_HOMES: Final = {
    "follower": ("Feed", "Follower", "get_follower"),
    "lines": ("LineFilter", "LogReader", "ReplicaLogs", "last_lines", "last_words", "log_lines", "times"),
    "patience": ("Patience", "longer"),
    "workers": ("LogSubscription", "Observation", "Subscription"),
}
_MODULE_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Feed",
    "Follower",
    "LineFilter",
    "LogReader",
    "LogSubscription",
    "Observation",
    "Patience",
    "ReplicaLogs",
    "Subscription",
    "get_follower",
    "last_lines",
    "last_words",
    "log_lines",
    "longer",
    "times",
]


def __getattr__(name: str) -> Any:
    # lazy: waiting needs no regular expressions, and reading no threads
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
