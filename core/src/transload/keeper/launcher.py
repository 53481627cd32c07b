"""What a keeper needs of the place where replicas run: to start them, to end them, to hear of them.

A keeper's loop is the same for every engine. A launcher knows how its replicas are reached. It
decides nothing. `Gang` does, upon the events that a launcher returns.
"""

from __future__ import annotations

from . import layout
from .failures import LONGEST_ERROR, read_error
from .rules import Replica, Restart

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "ERROR_FILE",
    "Ended",
    "Event",
    "Launcher",
    "NotStarted",
    "Progressed",
    "Stalled",
    "Started",
]

ERROR_FILE = "error.json"
"""The file beside a replica's output with its report of its failure."""


class Event:
    """Something that happened to a replica."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica


class Started(Event):
    """An attempt runs.

    Args:
        replica: which.
        at: since when, seconds since the epoch.
        host: the name of its machine.
    """

    def __init__(self, replica: Replica, at: float, host: str) -> None:
        super().__init__(replica)
        self.at = at
        self.host = host


class NotStarted(Event):
    """A replica cannot be started, now or later.

    Args:
        replica: which.
        why: what hinders it.
        errno: the system's number for that, 0 for none.
    """

    def __init__(self, replica: Replica, why: str, errno: int = 0) -> None:
        super().__init__(replica)
        self.why = why
        self.errno = errno


class Ended(Event):
    """An attempt has ended.

    Args:
        replica: which.
        code: its exit code, −N for a death by signal N, or None if it is not known.
        at: when, seconds since the epoch.
        why: what happened, where that says more than the exit code.
        usage: the JSON form of `transload.specs.Usage`, if it is known.
        since: where in its error output the attempt begins.
        cause: what interrupted it, where the engine knows (`Gang.ended`).
        retry: False if it cannot be started again.
    """

    def __init__(
        self,
        replica: Replica,
        code: int | None,
        at: float,
        *,
        why: str = "",
        usage: dict[str, Any] | None = None,
        since: int = 0,
        cause: str = "",
        retry: bool = True,
    ) -> None:
        super().__init__(replica)
        self.code = code
        self.at = at
        self.why = why
        self.usage = usage
        self.since = since
        self.cause = cause
        self.retry = retry


class Progressed(Event):
    """A replica has reported progress.

    Args:
        replica: which.
        report: what it says, as `read_report` returns it.
    """

    def __init__(self, replica: Replica, report: dict[str, Any]) -> None:
        super().__init__(replica)
        self.report = report


class Stalled(Event):
    """A replica has stalled.

    Args:
        replica: which.
        now: whether it has stalled just now, or goes on.
    """

    def __init__(self, replica: Replica, now: bool) -> None:
        super().__init__(replica)
        self.now = now


class Launcher:
    """Starts, signals and ends the replicas of a job, and says what happens to them.

    Attributes:
        stuck: what does not end although it was killed, as text.
        waiting: what the replicas wait for that cannot be started now, as text.
    """

    def __init__(self) -> None:
        self.stuck = ""
        self.waiting = ""

    def logs_of(self, replica: Replica) -> str:
        """Return the folder of a replica's output."""
        raise NotImplementedError

    def error_of(self, replica: Replica, code: int, since: int) -> str:
        """Return a replica's report of its failure, else the exception at the end of its output.

        Args:
            replica: which.
            code: its exit code.
            since: where in its error output the attempt begins.
        """
        logs = self.logs_of(replica)
        said = read_error(layout.part_of_own(f"{logs}/{ERROR_FILE}", LONGEST_ERROR))
        if said or code != 1:  # what an interpreter exits with
            return said
        from .tracebacks import traceback_error  # what finds it is loaded when it is needed

        return traceback_error(layout.end_of_own(f"{logs}/stderr.log", LONGEST_ERROR, since))

    def start(self, replicas: Sequence[Replica]) -> None:
        """Begin to start replicas. `events` says what became of each."""
        raise NotImplementedError

    def signal(self, replica: Replica, number: int) -> None:
        """Send a signal to the main process of a replica, if it lives."""
        raise NotImplementedError

    def stop(self, restarts: Sequence[Restart] | None) -> None:
        """End the replicas of these restarts, None for all, and no others any more.

        This is said again and again, and what has begun goes on. Each replica has the time of its
        notice, or that of the job's grace.
        """
        raise NotImplementedError

    def is_stopped(self, restart: Restart | None) -> bool:
        """Tell whether nothing is left of what `stop` was given."""
        raise NotImplementedError

    def kill(self) -> None:
        """Give nothing any time from now on."""
        raise NotImplementedError

    def events(self) -> list[Event]:
        """Return what has happened since this was asked last."""
        raise NotImplementedError

    def due(self) -> float:
        """Return when to call `stop` or `events` again, though nothing is heard. Monotonic."""
        raise NotImplementedError

    def close(self) -> None:
        """Note what is left to note, since nothing runs any more."""
