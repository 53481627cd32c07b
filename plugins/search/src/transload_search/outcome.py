"""What an exception says about the trial whose app it came from."""

from __future__ import annotations

from transload.errors import AppFailed, TransloadTimeout
from transload.specs import AppState


def failed_state(error: BaseException) -> AppState | None:
    """Return how a trial's app ended, told by what waiting for it raised; None: that says nothing about the trial.

    An app that failed, was cancelled, is lost or ran out of its time is a failed trial, which a suggester learns from.
    Anything else (a scheduler that is out of reach, a submit that was not taken, a host that was killed) is none: the
    search waits, or ends and is gone on with later.
    """
    from transload.pipelines import AppLost

    if isinstance(error, AppFailed):
        return error.status.state
    return AppState.FAILED if isinstance(error, (AppLost, TransloadTimeout)) else None
