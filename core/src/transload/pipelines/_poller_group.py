"""The apps of one scheduler, as the poller's thread handles them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SchedulerUnavailable
from transload.schedulers.api import tend
from transload.specs import AppState, AppStatus

if TYPE_CHECKING:
    from transload.pipelines._poller import Subscription
    from transload.schedulers.api import AppDescription, SchedulerBase

GROWTH: Final = 1.5
"""Each pause without news is longer than the one before by this factor."""

SHARE: Final = 20.0
"""A pause is at least this many times as long as the query before it: five per cent of the time at most."""

RECHECK: Final = 60.0
"""Seconds after which all apps of a scheduler that pushes are asked for, in case it missed one."""


class WatchedApp:
    """One app and who wants to know of it."""

    __slots__ = ("handle", "seen", "subscriptions")

    def __init__(self, handle: str) -> None:
        self.handle = handle
        self.subscriptions: list[Subscription] = []
        self.seen: tuple[object, ...] | None = None


class Group:
    """All watched apps of one scheduler. ``add`` and ``sweep`` run under the poller's lock, the rest in its thread.

    Args:
        scheduler: whom to ask.
        first_pause: seconds of the shortest pause.
    """

    def __init__(self, scheduler: SchedulerBase, first_pause: float) -> None:
        self.scheduler = scheduler
        self.apps: dict[str, WatchedApp] = {}
        self._fresh: set[str] = set()
        self._taken: set[str] = set()
        self._members: list[str] | None = None
        self._unknown: set[str] = set()
        self._first_pause = first_pause
        self._pause = first_pause
        self._next = 0.0
        self._watch: Any = None
        self._watch_again = 0.0
        self._members_changed = True

    def add(self, app_id: str) -> None:
        """Take note of a new subscription."""
        self._fresh.add(app_id)
        self._members_changed = True
        self._pause = self._first_pause
        self._next = min(self._next, time.monotonic() + self._pause)

    def sweep(self) -> None:
        """Drop what nobody wants to know of any more, and take over what is new."""
        for app_id, app in list(self.apps.items()):
            app.subscriptions = [each for each in app.subscriptions if not each.closed]
            if not app.subscriptions:
                del self.apps[app_id]
                self._unknown.discard(app_id)
                self._fresh.discard(app_id)
                self._members_changed = True
        self._taken |= self._fresh
        self._fresh.clear()
        if self._members_changed:
            self._members_changed, self._members = False, list(self.apps)

    def close(self) -> None:
        """Free the scheduler's watch; one that cannot be closed must not end the thread that watches all others."""
        watch, self._watch = self._watch, None
        self._watch_again = 0.0
        if watch is not None:
            try:
                watch.close()
            except Exception:
                import logging

                name = self.scheduler.name
                logging.getLogger("transload.poller").exception("watch of scheduler %s could not be closed", name)

    @property
    def descriptor(self) -> int | None:
        """A file descriptor that becomes readable when something changed; None if there is none."""
        if self._watch is None or not hasattr(self._watch, "fileno") or not hasattr(self._watch, "drain"):
            return None
        number: int = self._watch.fileno()
        return number if number >= 0 else None

    def pause(self, now: float) -> float:
        """Return the seconds until `step` has something to do."""
        if self._taken:
            return 0.0
        ends = [self._next - now]
        for app_id in self._unknown:
            for subscription in self.apps[app_id].subscriptions if app_id in self.apps else ():
                left = subscription.patience.left
                if left is not None:
                    ends.append(left)
        return max(0.0, min(ends))

    def step(self, now: float) -> None:
        """Ask about what is due, and hand on what was found."""
        fresh, self._taken = self._taken, set()
        try:
            self._update_watch(now)
            pushed = self._pushed()
        except Exception as exc:
            self.drop_watch(f"{type(exc).__name__}: {exc}")
            pushed = set()
        due = self._due(now, fresh | pushed)
        if not due:
            return
        began = time.monotonic()
        found = self._ask(due)
        took = time.monotonic() - began
        news = False
        for app_id, status in found:
            news = self._hand_on(app_id, status) or news
        self._pause = self._first_pause if news else min(self._pause * GROWTH, self._longest())
        pause = self._pause if self.descriptor is None or self._unknown else RECHECK
        self._next = time.monotonic() + max(pause, SHARE * took)

    def _longest(self) -> float:
        intervals = [each.poll_interval for app in list(self.apps.values()) for each in app.subscriptions]
        return min(intervals, default=self._first_pause)

    def drop_watch(self, why: str) -> None:
        """Do without the scheduler's watch for a while: it broke. All apps are asked for instead."""
        import logging

        logging.getLogger("transload.poller").warning("watch of scheduler %s broke (%s)", self.scheduler.name, why)
        broken, self._watch = self._watch, None
        self._watch_again = time.monotonic() + RECHECK
        self._next = 0.0
        with contextlib.suppress(Exception):
            broken.close()

    def _update_watch(self, now: float) -> None:
        if self._watch is None and now >= self._watch_again:
            self._watch_again = float("inf")
            self._watch = self.scheduler.watch()
            self._members = list(self.apps)
        if self._watch is not None and self._members is not None:
            self._watch.update(self._members)
            self._members = None

    def _pushed(self) -> set[str]:
        if self._watch is None:
            return set()
        changed = self._watch.drain() if self.descriptor is not None else self._watch.wait(0)
        return {change.app_id for change in changed}

    def _due(self, now: float, due: set[str]) -> list[str]:
        impatient = any(
            (left := each.patience.left) is not None and left <= 0
            for app_id in self._unknown
            for each in (self.apps[app_id].subscriptions if app_id in self.apps else ())
        )
        if now >= self._next or impatient:
            only_unknown = self.descriptor is not None and bool(self._unknown) and now < self._next + RECHECK
            due |= self._unknown if only_unknown else set(self.apps)
        return [app_id for app_id in due if app_id in self.apps]

    def _ask(self, app_ids: list[str]) -> Iterable[tuple[str, AppStatus | None]]:
        try:
            found = self.scheduler.describe_many(app_ids)
        except SchedulerUnavailable as exc:
            return [(app_id, AppStatus(AppState.UNKNOWN, msg=str(exc))) for app_id in app_ids]
        except Exception as exc:
            import logging

            logging.getLogger("transload.poller").exception("scheduler %s failed to answer", self.scheduler.name)
            message = f"{type(exc).__name__}: {exc}"
            return [(app_id, AppStatus(AppState.UNKNOWN, msg=message)) for app_id in app_ids]
        for description in found.values():
            tend(self.scheduler, description)
        return [(app_id, _status(found, app_id)) for app_id in app_ids]

    def _hand_on(self, app_id: str, status: AppStatus | None) -> bool:
        app = self.apps.get(app_id)
        if app is None:
            return False
        key = ("gone",) if status is None else (status.state, status.num_restarts, status.cancel_requested)
        changed = key != app.seen
        if status is not None and status.state is AppState.UNKNOWN:
            self._unknown.add(app_id)
        else:
            self._unknown.discard(app_id)
        if changed and status is not None and (app.seen is None or app.seen[:2] != key[:2]):
            _emit(app.handle, status)
        app.seen = key
        for subscription in list(app.subscriptions):
            subscription.offer(status, changed)
        return changed


def _status(found: dict[str, AppDescription | None], app_id: str) -> AppStatus | None:
    if app_id not in found:
        # not answered is not absent
        return AppStatus(AppState.UNKNOWN, msg="the scheduler did not answer for this app")
    description = found[app_id]
    return None if description is None else description.status


def _emit(handle: str, status: AppStatus) -> None:
    from transload.plugins import AppEvent, get_plugins

    get_plugins().emit(AppEvent(handle, status.state, status.num_restarts, status, time.time()))
