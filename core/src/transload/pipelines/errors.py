"""What can go wrong between a host and an app, besides the app failing."""

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
    """An app that was started is provably gone, with no record of how it ended.

    A host failure: only the host's own retry may answer it with a new attempt.

    Attributes:
        handle: the handle that was stored.
    """

    def __init__(self, handle: str, why: str = "") -> None:
        reason = why or "it was deleted, or its scheduler lost its state"
        super().__init__(f"{handle} is lost: it was started and does not exist any more ({reason})")
        self.handle = handle


class AppCancelled(AppFailed):
    """The app ended because somebody asked for its end: not a failure of the app, and not to be
    retried.
    """


class Detached(TransloadError):
    """The host gave up waiting and left the app running: nobody asked for its end, or
    ``on_kill="detach"``.

    Attributes:
        handle: the app, or None if none was submitted.
        asked: whether it was to be left (``on_kill="detach"``); False: something ended the host
            that nobody asked for.
    """

    def __init__(self, handle: str | None, *, asked: bool = True) -> None:
        super().__init__(
            f"detached from {handle}: it goes on"
            if handle
            else "stopped before the app was submitted"
        )
        self.handle = handle
        self.asked = asked


class HandedBack(TransloadError):
    """A process that may neither submit nor save came to where it would have to.

    Another process goes on from the state. See ``AdapterIO.may_save``.
    """


def ended_state(error: BaseException) -> AppState | None:
    """Return how an app ended, told by what `Driver.run` raised; None: that says nothing of how
    it ended.

    One that is lost or ran out of its time has failed. A scheduler that is out of reach, a submit
    that was not taken, a
    host that was killed say nothing: no trial of a search, and no failure that the scheduler's
    retries answered.
    """
    if isinstance(error, AppFailed):
        return error.status.state
    return AppState.FAILED if isinstance(error, (AppLost, TransloadTimeout)) else None


class Ending(str, Enum):
    """What a host is told of a unit of work that did not end well; each host has a table of its own
    words for these.

    - ``failed``: the app failed, is lost, or was not taken.
    - ``cancelled``: somebody asked for its end.
    - ``timeout``: a limit passed, and it was cancelled.
    - ``unknown``: its scheduler cannot say for longer than patience lasts; it is left alone.
    - ``detached``: the host stopped waiting, and it goes on.
    - ``wrong``: nothing was started: a person must mend a spec, a setting or an installation.
    """

    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"
    DETACHED = "detached"
    MISCONFIGURED = "wrong"

    @staticmethod
    def of(error: BaseException) -> Ending:
        """Return the ending that an exception of `Driver.run` stands for; whatever else was
        raised is a failure.
        """
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
