"""What plugins are given when something happens to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transload.specs import AppState, AppStatus


class AppEvent(NamedTuple):
    """A change of state, as `hookspecs.transload_app_event` gets it.

    Args:
        handle: the handle of the job.
        state: the new state.
        attempt: ``num_restarts`` of the job at that time.
        status: the whole status.
        time: when it was observed, seconds since the epoch.
    """

    handle: str
    state: AppState
    attempt: int
    status: AppStatus
    time: float

    @property
    def id(self) -> str:
        """Return the id that is equal for two observations of the same change."""
        return f"{self.handle}#{self.state.name}#{self.attempt}"
