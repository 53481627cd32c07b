"""The threads that follow apps: for each scheduler one for states and one for logs, while somebody wants to know."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SchedulerUnavailable
from transload.following.patience import Patience, longer
from transload.schedulers.api import tend
from transload.specs import AppState, AppStatus, is_terminal

if TYPE_CHECKING:
    from transload.schedulers.api import AppDescription, Change, SchedulerBase, Watch

SHARE: Final = 20.0
"""A pause is at least this many times as long as the query before it: five per cent of the time at most."""

RECHECK: Final = 60.0
"""Seconds after which all apps of a scheduler that pushes are asked for, in case it missed one."""

FIRST_PAUSE: Final = 0.05
"""Seconds before the second question to a scheduler that cannot push."""

_FIRST_LOOK: Final = 0.005
_LOG_RECHECK: Final = 10.0
_EMPTY_WAITS: Final = 100


class Worker(ABC):
    """One thread for one scheduler. It has the scheduler's watch, if there is one; it ends when nobody subscribes.

    Args:
        scheduler: whom to ask.
        lock: guards the subscriptions of all workers.
        ended: called, under the lock, when the thread ends.
    """

    logs = False
    """Whether its watch is to tell of logs."""

    def __init__(self, scheduler: SchedulerBase, lock: threading.Lock, ended: Callable[[], object]) -> None:
        self.scheduler = scheduler
        self._lock = lock
        self._ended = ended
        self._woken = threading.Event()
        self._watch: Watch | None = None
        self._watch_again = 0.0
        self._empty = 0
        self._members: list[str] = []
        self.thread = threading.Thread(target=self._run, daemon=True, name=f"transload-{type(self).__name__.lower()}")

    def wake(self) -> None:
        """Make the thread look at its subscriptions."""
        self._woken.set()
        watch = self._watch
        if watch is not None:
            watch.wake()

    @abstractmethod
    def _sweep(self) -> list[str]:
        """Drop ended subscriptions, under the lock; return the ids of the apps that are left."""

    @abstractmethod
    def _due_in(self, now: float) -> float:
        """Return the seconds until `_step` has something to do."""

    @abstractmethod
    def _step(self, now: float, changes: set[Change]) -> None:
        """Look at what is due or has changed."""

    def _run(self) -> None:
        while True:
            self._woken.clear()
            with self._lock:
                members = self._sweep()
                if not members:
                    self._ended()
                    break
            self._update_watch(members)
            changes = self._wait(max(0.0, self._due_in(time.monotonic())))
            self._step(time.monotonic(), changes)
        self._close_watch()

    def _update_watch(self, members: list[str]) -> None:
        try:
            if self._watch is None and time.monotonic() >= self._watch_again:
                self._watch_again = float("inf")
                self._watch = self.scheduler.watch(logs=True) if self.logs else self.scheduler.watch()
                self._members = []
            if self._watch is not None and members != self._members:
                self._watch.update(members)
                self._members = members
        except Exception as exc:
            self._drop_watch(f"{type(exc).__name__}: {exc}")

    def _wait(self, seconds: float) -> set[Change]:
        if self._watch is None:
            self._woken.wait(min(seconds, RECHECK))
            return set()
        if self._woken.is_set():
            seconds = 0.0
        began = time.monotonic()
        try:
            changes = self._watch.wait(min(seconds, RECHECK))
        except Exception as exc:
            self._drop_watch(f"{type(exc).__name__}: {exc}")
            return set()
        in_vain = not changes and not self._woken.is_set() and time.monotonic() - began < seconds / 2
        self._empty = self._empty + 1 if in_vain else 0
        if self._empty > _EMPTY_WAITS:
            self._drop_watch("it returns at once, with nothing")
        return changes

    def _drop_watch(self, why: str) -> None:
        """Do without the scheduler's watch for a while: it broke. All apps are asked for instead."""
        _logger().warning("watch of scheduler %s broke (%s)", self.scheduler.name, why)
        broken, self._watch = self._watch, None
        self._watch_again = time.monotonic() + RECHECK
        self._empty = 0
        with contextlib.suppress(Exception):
            if broken is not None:
                broken.close()

    def _close_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            try:
                watch.close()
            except Exception:
                _logger().exception("watch of scheduler %s could not be closed", self.scheduler.name)


# -- states


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of an app.

    Args:
        handle: the app.
        status: its status; None: it provably does not exist (any more).
        exhausted: its state was unknown for longer than the subscriber's patience.
        unknown_for: seconds of unbroken UNKNOWN.
    """

    handle: str
    status: AppStatus | None
    exhausted: bool = False
    unknown_for: float = 0.0

    @property
    def final(self) -> bool:
        """True if this is the last observation that the subscription gets."""
        return self.exhausted or self.status is None or is_terminal(self.status.state)


class Subscription:
    """One party's interest in one app. It ends by itself with the final observation."""

    __slots__ = ("_delivered", "_wake", "callback", "closed", "handle", "patience", "poll_interval")

    def __init__(
        self,
        handle: str,
        callback: Callable[[Observation], object],
        patience: Patience,
        poll_interval: float,
        wake: Callable[[], object],
    ) -> None:
        self._wake = wake
        self._delivered = False
        self.handle = handle
        self.callback = callback
        self.patience = patience
        self.poll_interval = poll_interval
        self.closed = False

    def close(self) -> None:
        """End it; the callback is not called any more once this returned (save for one call under way)."""
        if not self.closed:
            self.closed = True
            self._wake()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def offer(self, status: AppStatus | None, changed: bool) -> None:
        """Hand over what was seen, if it is news to this subscriber."""
        if self.closed:
            return
        exhausted = self.patience.observe(status.state if status is not None else AppState.RUNNING)
        if not (changed or exhausted or not self._delivered):
            return
        self._delivered = True
        seen = Observation(self.handle, status, exhausted, self.patience.elapsed or 0.0)
        if seen.final:
            self.closed = True
        try:
            if self.callback(seen) is False:
                self.closed = True
        except Exception:
            self.closed = True
            _logger().exception("subscriber of %s failed; it gets no more", self.handle)


@dataclass(slots=True)
class _App:
    """One app and who wants to know of it."""

    handle: str
    subscriptions: list[Subscription] = field(default_factory=list)
    seen: tuple[object, ...] | None = None
    unknown: bool = False


class States(Worker):
    """Follows the states of apps: told by the scheduler, or asking for all at once, with growing pauses."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.apps: dict[str, _App] = {}
        self._fresh: set[str] = set()
        self._pause = FIRST_PAUSE
        self._next = 0.0

    def add(self, app_id: str, subscription: Subscription) -> None:
        """Add a subscription, under the lock."""
        self.apps.setdefault(app_id, _App(subscription.handle)).subscriptions.append(subscription)
        self._fresh.add(app_id)

    def _sweep(self) -> list[str]:
        for app_id, app in list(self.apps.items()):
            app.subscriptions = [each for each in app.subscriptions if not each.closed]
            if not app.subscriptions:
                del self.apps[app_id]
        return list(self.apps)

    def _due_in(self, now: float) -> float:
        if self._fresh:
            return 0.0
        return min([self._next - now, *(left for _, left in self._patience_left())])

    def _patience_left(self) -> Iterable[tuple[str, float]]:
        for app_id, app in list(self.apps.items()):
            if app.unknown:
                for each in app.subscriptions:
                    left = each.patience.left
                    if left is not None:
                        yield app_id, left

    def _step(self, now: float, changes: set[Change]) -> None:
        with self._lock:
            due, self._fresh = self._fresh, set()
            due |= {change.app_id for change in changes}
        if now >= self._next:
            due |= set(self.apps)
        due |= {app_id for app_id, left in self._patience_left() if left <= 0}
        asked = [app_id for app_id in due if app_id in self.apps]
        if not asked:
            return
        began = time.monotonic()
        found = self._ask(asked)
        took = time.monotonic() - began
        news = [app_id for app_id, status in found if self._hand_on(app_id, status)]
        longest = min(
            (each.poll_interval for app in list(self.apps.values()) for each in app.subscriptions), default=FIRST_PAUSE
        )
        pause = self._pause = FIRST_PAUSE if news else longer(self._pause, longest)
        if self._watch is not None and not any(app.unknown for app in self.apps.values()):
            pause = RECHECK
        self._next = time.monotonic() + max(pause, SHARE * took)

    def _ask(self, app_ids: list[str]) -> list[tuple[str, AppStatus | None]]:
        try:
            found = self.scheduler.describe_many(app_ids)
        except SchedulerUnavailable as exc:
            return [(app_id, AppStatus(AppState.UNKNOWN, msg=str(exc))) for app_id in app_ids]
        except Exception as exc:
            _logger().exception("scheduler %s failed to answer", self.scheduler.name)
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
        app.unknown = status is not None and status.state is AppState.UNKNOWN
        if changed and status is not None and (app.seen is None or app.seen[:2] != key[:2]):
            _emit(app.handle, status)
        app.seen = key
        for subscription in list(app.subscriptions):
            subscription.offer(status, changed)
        return changed

    def _drop_watch(self, why: str) -> None:
        super()._drop_watch(why)
        self._next = 0.0


def _status(found: dict[str, AppDescription | None], app_id: str) -> AppStatus | None:
    if app_id not in found:
        # not answered is not absent
        return AppStatus(AppState.UNKNOWN, msg="the scheduler did not answer for this app")
    description = found[app_id]
    return None if description is None else description.status


# -- logs


class LogSubscription:
    """One party's interest in the logs of one app.

    Args:
        app_id: the app.
        read: reads and hands on what is there; tells whether there was anything. It runs in the thread of the
            scheduler's logs, in the context of the subscriber.
        longest: seconds between two calls, at most, where the scheduler does not tell of growth.
        wake: wakes the thread.
    """

    def __init__(self, app_id: str, read: Callable[[], bool], longest: float, wake: Callable[[], object]) -> None:
        self.app_id = app_id
        self.closed = False
        self.next = self.rest = 0.0
        self._pause, self._longest = _FIRST_LOOK, longest
        self._read = read
        self._context = contextvars.copy_context()
        self._wake = wake
        self._reading = threading.Lock()

    def read(self, told: bool) -> None:
        """Let the subscriber read, and note when it is to read again."""
        began = time.monotonic()
        found = False
        with self._reading:
            if not self.closed:
                try:
                    found = self._context.run(self._read)
                except Exception:
                    self.closed = True
                    _logger().exception("reader of the logs of %s failed; it gets no more", self.app_id)
        now = time.monotonic()
        # many replicas that write all the time: read at most half of the time
        self.rest = now + (now - began if now - began > _FIRST_LOOK else 0.0)
        self._pause = _FIRST_LOOK if found else longer(self._pause, self._longest)
        self.next = max(self.rest, now + (_LOG_RECHECK if told and not found else self._pause))

    def hurry(self) -> None:
        """Have it read at once."""
        self.next = 0.0
        self._wake()

    def close(self, seconds: float = -1) -> bool:
        """End it; wait, for so many seconds, until no reading is under way, and tell whether that is so."""
        self.closed = True
        self._wake()
        done = self._reading.acquire(timeout=seconds)
        if done:
            self._reading.release()
        return done


class Logs(Worker):
    """Reads the logs of apps: when they have grown, where the scheduler tells, else with growing pauses."""

    logs = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.subscriptions: list[LogSubscription] = []

    def _sweep(self) -> list[str]:
        self.subscriptions = [each for each in self.subscriptions if not each.closed]
        return list(dict.fromkeys(each.app_id for each in self.subscriptions))

    def _due_in(self, now: float) -> float:
        return min((each.next for each in list(self.subscriptions)), default=now) - now

    def _step(self, now: float, changes: set[Change]) -> None:
        changed = {change.app_id for change in changes}
        told = self._watch is not None
        for each in list(self.subscriptions):
            if each.app_id in changed:
                each.next = min(each.next, each.rest)
            if now >= each.next:
                each.read(told)


def _emit(handle: str, status: AppStatus) -> None:
    from transload.plugins import AppEvent, get_plugins

    get_plugins().emit(AppEvent(handle, status.state, status.num_restarts, status, time.time()))


def _logger() -> Any:
    import logging

    return logging.getLogger("transload.following")
