"""What a scheduler may offer beyond the contract. Callers look whether it is there, and do without where it is not.

Besides the methods below, two attributes: ``secret_kinds``, a frozenset of the kinds of secret sources that the
scheduler resolves itself (``{"k8s"}``), and ``qualified_id(app_id, cfg) -> str`` where an app id must carry more than a
name (Kubernetes: ``namespace:name``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from transload.errors import SchedulerUnavailable

if TYPE_CHECKING:
    from transload.schedulers.api import AppDescription

__all__ = ["Diagnoses", "LogWatch", "Prunes", "Tends", "WatchesLogs", "tend"]


@runtime_checkable
class LogWatch(Protocol):
    """Waits until some log may have grown."""

    def wait(self, timeout: float) -> None:
        """Return when some log may have grown or the app may have changed, after ``timeout`` seconds at most."""

    def grew(self) -> None:
        """Be told that there was something to read: without notifications, look again soon."""

    def close(self) -> None:
        """Free what the watch holds."""


@runtime_checkable
class WatchesLogs(Protocol):
    """A scheduler that can tell when logs grow."""

    def log_watch(self, app_id: str, replicas: Collection[tuple[str, int]]) -> LogWatch:
        """Return a watch over the logs of these replicas, ``(role, number)`` each: one descriptor for all."""


@runtime_checkable
class Prunes(Protocol):
    """A scheduler that keeps ended apps until they are removed."""

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete apps that have ended: those older than so many seconds, and the oldest beyond so many bytes.

        Returns:
            The ids of the deleted apps, oldest first; those that would be deleted, if ``dry_run``.
        """


@runtime_checkable
class Tends(Protocol):
    """A scheduler that leaves something to the process that waits for an app as its owner; reading never does it."""

    def tend(self, app_id: str) -> None:
        """Do what is left to do for an app whose description says that something is due. Safe to repeat by anybody."""


def tend(scheduler: object, description: AppDescription | None) -> None:
    """Do what is due for an app, as the process that waits for it; what cannot be done now is left for later."""
    if description is not None and description.due and isinstance(scheduler, Tends):
        with contextlib.suppress(SchedulerUnavailable):
            scheduler.tend(description.app_id)


@runtime_checkable
class Diagnoses(Protocol):
    """A scheduler that can tell whether it works here."""

    def diagnose(self) -> list[tuple[str, bool, str]]:
        """Return checks for ``transload doctor``: what was looked at, whether it is well, and what was found."""
