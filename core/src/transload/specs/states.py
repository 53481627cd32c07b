"""Define the states of a job."""

from __future__ import annotations

from enum import Enum


class AppState(int, Enum):
    """State of a job or of a replica.

    | state | meaning | terminal |
    |---|---|---|
    | UNSUBMITTED | known here, not yet given to a scheduler | |
    | SUBMITTED | the scheduler has accepted it | |
    | PENDING | waiting for resources, or being started again | |
    | RUNNING | at least one replica runs | |
    | SUCCEEDED | nothing runs any more, and enough replicas of each role ended well | yes |
    | FAILED | ended badly, retries used up | yes |
    | CANCELLED | ended because somebody asked | yes |
    | UNKNOWN | the scheduler cannot say, which is no error by itself | |
    """

    UNSUBMITTED = 0
    SUBMITTED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    UNKNOWN = 7

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)

    def __repr__(self) -> str:
        return f"{self.name} ({self.value})"


ReplicaState = AppState
"""A replica has the states of a job."""

_TERMINAL = frozenset({AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED})


def is_terminal(state: AppState) -> bool:
    """Tell whether a state is final. The one place that decides it."""
    return state in _TERMINAL


def is_started(state: AppState) -> bool:
    """Tell whether something has run, which is so if the state is RUNNING or terminal."""
    return state is AppState.RUNNING or state in _TERMINAL
