"""What can go wrong between a host and an app, besides the app failing."""

from __future__ import annotations

from transload.errors import AppFailed, TransloadError


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
    """The app ended because somebody asked for its end: not a failure of the app, and not to be retried."""


class Detached(TransloadError):
    """The host gave up waiting and left the app running, as it was told to (``on_kill="detach"``).

    Attributes:
        handle: the app, or None if none was submitted.
    """

    def __init__(self, handle: str | None) -> None:
        super().__init__(f"detached from {handle}: it goes on" if handle else "stopped before the app was submitted")
        self.handle = handle
