"""Following apps until they end: their states, and their logs line by line, on the contract of a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.following.follower import Feed, Follower, get_follower
    from transload.following.lines import LineFilter, LogReader, ReplicaLogs, last_lines, last_words, log_lines, times
    from transload.following.patience import Patience, longer
    from transload.following.workers import LogSubscription, Observation, Subscription

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

# lazy: waiting needs no regular expressions, and reading no threads
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "follower": ("Feed", "Follower", "get_follower"),
        "lines": ("LineFilter", "LogReader", "ReplicaLogs", "last_lines", "last_words", "log_lines", "times"),
        "patience": ("Patience", "longer"),
        "workers": ("LogSubscription", "Observation", "Subscription"),
    },
)
