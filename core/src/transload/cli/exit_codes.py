"""The exit codes of the command line, and the errors and states that they belong to."""

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
    """The exit codes of ``transload``."""

    OK = 0
    FAILED = 1
    """The job ended FAILED."""
    MISTAKE = 2
    """A spec, argument, setting or handle is wrong, or a job is unknown. Nothing was started."""
    UNAVAILABLE = 3
    """The scheduler is unreachable or did not accept the job now. Try the same command later."""
    CANCELLED = 4
    """The job ended CANCELLED."""
    TIMEOUT = 5
    """Waiting timed out. The job goes on."""
    UNKNOWN = 6
    """The job's state was unknown for too long, or the job vanished while the command waited."""
    INTERNAL = 70
    """A defect of transload."""
    LEFT = 130
    """A second Ctrl-C ended the command immediately."""
    PIPE = 141
    """The reader of the output is gone, or the output cannot be written (a full disk)."""
    TERMINATED = 143
    """SIGTERM ended the command, but nobody requested the end of the job. The job goes on."""


# states by name, because `--help` does not import specs
_BY_STATE: Final = {
    "SUCCEEDED": ExitCode.OK,
    "FAILED": ExitCode.FAILED,
    "CANCELLED": ExitCode.CANCELLED,
    "UNKNOWN": ExitCode.UNKNOWN,
}


def exit_code_of(state: AppState | None) -> ExitCode:
    """Return the exit code for a job's last state, which is None if the job has vanished."""
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
