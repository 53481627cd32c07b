"""The errors between an orchestrator and a job, besides a failure of the job."""

from __future__ import annotations

from enum import Enum

from transload.errors import (
    AppExists,
    AppFailed,
    ConfigError,
    PluginError,
    SpecError,
    StateUnknown,
    TransloadError,
    TransloadTimeout,
)
from transload.specs import AppState


class AppLost(TransloadError):
    """A job that was started is provably gone, with no record of how it ended.

    It is a failure of the orchestrator, and only its own retry may start a new attempt.

    Attributes:
        handle: the handle that was stored.
    """

    def __init__(self, handle: str, why: str = "") -> None:
        reason = why or "it was deleted, or its scheduler lost its state"
        super().__init__(f"{handle} is lost: it was started and does not exist any more ({reason})")
        self.handle = handle


class AppCancelled(AppFailed):
    """The job ended because somebody asked for its end.

    This is no failure of the job, and is not to be retried.
    """


class Detached(TransloadError):
    """The orchestrator gave up waiting, and the job goes on.

    Nobody asked for its end, ``on_kill="detach"`` is set, or a later try of the step has the job.

    Attributes:
        handle: the job, or None if none was submitted.
        asked: True if it was to go on (``on_kill="detach"``, a later try), False if the
            orchestrator's process was ended without a request.
    """

    def __init__(self, handle: str | None, *, asked: bool = True, why: str = "it goes on") -> None:
        message = "stopped before the job was submitted"
        if handle is not None:
            message = f"detached from {handle}: {why}"
        super().__init__(message)
        self.handle = handle
        self.asked = asked


class StillRunning(StateUnknown):
    """A job that is to end before the step runs again has not ended within the patience.

    It is left to itself. A later try waits for it again.
    """

    def __init__(self, handle: str, seconds: float) -> None:
        super().__init__(handle, seconds, "it still runs")
        message = (
            f"{handle} is to end before this step runs again, and still runs after {seconds:.1f} s, "
            f"longer than the patience allows; to see it: transload status {handle}"
        )
        self.args = (message,)


def ended_state(error: BaseException) -> AppState | None:
    """Return how a job ended, by the exception of `Step.run`, or None if that does not show it.

    A job that is lost, or ran out of its time, has failed. A scheduler that cannot be reached, a
    refused submit and a killed orchestrator show no end. They are no trial of a search, and no
    failure that the scheduler's retries answered.
    """
    if isinstance(error, AppFailed):
        return error.status.state
    return AppState.FAILED if isinstance(error, (AppLost, TransloadTimeout)) else None


class Ending(str, Enum):
    """How a step ended that did not end well. Each adapter has a table of its orchestrator's words.

    - ``failed``: the job failed, is lost, or was not taken.
    - ``cancelled``: somebody asked for its end.
    - ``timeout``: a limit passed, and it was cancelled.
    - ``unknown``: its scheduler could not be reached for the unreachable timeout. The job goes on.
    - ``detached``: the orchestrator stopped waiting, and it goes on.
    - ``wrong``: nothing was started. A person must mend a spec, a setting or an installation.
    """

    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"
    DETACHED = "detached"
    MISCONFIGURED = "wrong"

    @staticmethod
    def of(error: BaseException) -> Ending:
        """Return the ending for an exception of `Step.run`. Any other exception is a failure."""
        return next(
            (ending for kinds, ending in _ENDINGS if isinstance(error, kinds)), Ending.FAILED
        )


_ENDINGS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Ending], ...] = (
    (AppCancelled, Ending.CANCELLED),
    (TransloadTimeout, Ending.TIMEOUT),
    (StateUnknown, Ending.UNKNOWN),
    (Detached, Ending.DETACHED),
    ((SpecError, ConfigError, PluginError, AppExists), Ending.MISCONFIGURED),
)
