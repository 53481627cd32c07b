"""Limits on how long an app may wait before it runs, and on the whole.

What is counted is kept in a dict that travels between processes as JSON, so moments are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from transload.specs import AppState, is_started

if TYPE_CHECKING:
    from transload.pipelines._options import ExecutionOptions


def note_state(counts: MutableMapping[str, float], state: AppState, now: float) -> None:
    """Note when an app was first seen in a state that has a limit, or to run."""
    if is_started(state):
        counts.setdefault("ran", now)
    elif state in (AppState.UNSUBMITTED, AppState.SUBMITTED):
        counts.setdefault("submitted", now)
    elif state is AppState.PENDING:
        counts.setdefault("pending", now)


def next_limit(options: ExecutionOptions, counts: Mapping[str, float]) -> tuple[float, str]:
    """Return when the next limit passes, and what to say then; infinity if none is running."""
    ends = [(float("inf"), "")]
    if options.deadline is not None:
        ends.append((options.deadline, "the host's time limit has passed"))
    startup, schedule = options.startup_timeout, options.schedule_timeout
    if "ran" in counts:  # a pre-emption is no start-up
        pass
    elif "pending" in counts:
        if startup is not None:
            text = f"it did not start running within startup_timeout={startup} s of being PENDING"
            ends.append((counts["pending"] + startup, text))
    elif "submitted" in counts and schedule is not None:
        text = f"it did not leave SUBMITTED within schedule_timeout={schedule} s"
        ends.append((counts["submitted"] + schedule, text))
    return min(ends)
