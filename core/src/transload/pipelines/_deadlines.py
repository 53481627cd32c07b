"""Limits on how long an app may wait before it runs, and on the whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transload.specs import AppState, AppStatus, is_started


@dataclass
class Deadlines:
    """Watches over the time that an app spends before it first runs, and over an absolute end.

    Args:
        schedule_timeout: seconds that it may be UNSUBMITTED or SUBMITTED; None: no limit.
        startup_timeout: seconds that it may be PENDING before it first runs; None: no limit.
        deadline: when the host's patience with the whole ends, seconds since the epoch; None: never.
        clock: seconds since the epoch; the counts travel between processes, so no monotonic clock will do.
    """

    schedule_timeout: float | None = None
    startup_timeout: float | None = None
    deadline: float | None = None
    clock: Callable[[], float] = time.time
    submitted_at: float | None = None
    pending_at: float | None = None
    ran: bool = False

    def observe(self, status: AppStatus) -> None:
        """Take note of a status."""
        now = self.clock()
        if is_started(status.state):
            self.ran = True
        elif status.state in (AppState.UNSUBMITTED, AppState.SUBMITTED):
            self.submitted_at = self.submitted_at or now
        elif status.state is AppState.PENDING:
            self.pending_at = self.pending_at or now

    def passed(self) -> str | None:
        """Return which limit was passed, as text for a person; None if none was."""
        now = self.clock()
        if self.deadline is not None and now >= self.deadline:
            return "the host's time limit has passed"
        if self.ran:
            return None
        if self._over(self.pending_at, self.startup_timeout, now):
            return f"it did not start running within startup_timeout={self.startup_timeout} s of being PENDING"
        if self.pending_at is None and self._over(self.submitted_at, self.schedule_timeout, now):
            return f"it did not leave SUBMITTED within schedule_timeout={self.schedule_timeout} s"
        return None

    def left(self) -> float | None:
        """Return the seconds until the next limit, 0 or more; None if none is running."""
        ends = [] if self.deadline is None else [self.deadline]
        if not self.ran:
            if self.pending_at is not None and self.startup_timeout is not None:
                ends.append(self.pending_at + self.startup_timeout)
            elif self.pending_at is None and self.submitted_at is not None and self.schedule_timeout is not None:
                ends.append(self.submitted_at + self.schedule_timeout)
        return max(0.0, min(ends) - self.clock()) if ends else None

    def state(self) -> dict[str, Any]:
        """Return the counts as JSON values, for `restore` in another process."""
        return {"submitted_at": self.submitted_at, "pending_at": self.pending_at, "ran": self.ran}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the counts of another process."""
        self.submitted_at, self.pending_at = state.get("submitted_at"), state.get("pending_at")
        self.ran = bool(state.get("ran"))

    @staticmethod
    def _over(since: float | None, limit: float | None, now: float) -> bool:
        return since is not None and limit is not None and now - since >= limit
