"""Following apps until they end: their states, and their logs line by line, on the contract of a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.following.follower import *
    from transload.following.lines import *
    from transload.following.patience import *
    from transload.following.subscription import *

# lazy: waiting needs no regular expressions, and reading no threads
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "follower": "read_logs wait wait_async watch watched",
        "redraws": "Redraws drawn",
        "lines": "LineFilter LogReader drain follow_logs last_lines last_words log_lines read_now times",
        "patience": "check_seconds longer patience_left unknown_for unknown_since",
        "subscription": "Observation Subscription ended",
    },
)
