"""Exit codes of the command line, and which error or state gives which."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from transload.errors import (
    AppFailed,
    SchedulerUnavailable,
    SubmitError,
    TransloadError,
    TransloadTimeout,
)

if TYPE_CHECKING:
    from transload.specs import AppState


class ExitCode(IntEnum):
    """What ``transload`` exits with."""

    OK = 0
    FAILED = 1
    """The app ended FAILED."""
    MISTAKE = 2
    """The user's mistake: a bad spec, argument, setting or handle, an unknown app. Nothing was
    started."""
    UNAVAILABLE = 3
    """The scheduler cannot be reached, or did not take the app for now. The same command may work
    later."""
    CANCELLED = 4
    """The app ended CANCELLED."""
    TIMEOUT = 5
    """Waiting timed out; the app goes on."""
    UNKNOWN = 6
    """The state of the app could not be told for too long, or the app vanished while it was waited
    for."""
    INTERNAL = 70
    """A defect of transload."""
    LEFT = 130
    """Left at once by Ctrl-C."""
    PIPE = 141
    """Whoever read the output has gone, or it cannot be written (a full disk)."""
    TERMINATED = 143
    """Ended by SIGTERM, though nobody asked for the app's end; the app goes on."""


# by name: `--help` needs no specs
_BY_STATE: Final = {
    "SUCCEEDED": ExitCode.OK,
    "FAILED": ExitCode.FAILED,
    "CANCELLED": ExitCode.CANCELLED,
    "UNKNOWN": ExitCode.UNKNOWN,
}


def exit_code_of(state: AppState | None) -> ExitCode:
    """Return the exit code for the state in which waiting ended; None: the app has vanished."""
    if state is None:
        return ExitCode.UNKNOWN
    return _BY_STATE.get(state.name, ExitCode.TIMEOUT)


def exit_code_for(error: TransloadError) -> ExitCode:
    """Return the exit code for an error that transload raised on purpose."""
    if isinstance(error, SchedulerUnavailable):
        return ExitCode.UNAVAILABLE
    if isinstance(error, SubmitError):
        return ExitCode.UNAVAILABLE if error.transient else ExitCode.MISTAKE
    if isinstance(error, TransloadTimeout):
        return ExitCode.TIMEOUT
    if isinstance(error, AppFailed):
        return exit_code_of(error.status.state)
    return ExitCode.MISTAKE
