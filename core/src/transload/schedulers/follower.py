"""Follow jobs. The runner, the command line and the adapters all wait through this module.

For each scheduler there is a thread for states and one for logs, but only while there are
subscriptions, and a moment longer. So a slow scheduler only delays its own jobs.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from transload.errors import SchedulerUnavailable, TransloadTimeout
from transload.runtime.forks import fork_lock
from transload.schedulers.api import reconcile
from transload.schedulers.changes import Changes
from transload.schedulers.event_threads import EventThreads
from transload.schedulers.patience import DEFAULT_PATIENCE, backoff, check_seconds, patience_left
from transload.schedulers.subscription import Observation, Subscription, ended
from transload.specs import AppState, AppStatus, parse_app_handle

if TYPE_CHECKING:
    from transload.schedulers.api import SchedulerBase, Watch

__all__ = ["release"]


POLL_INTERVAL: Final = 5.0
"""The longest pause in seconds between two looks at states, if the scheduler does not report changes."""

SHARE: Final = 20.0
"""A pause is at least this many times as long as the look before it took.

So looks take at most five per cent of the time.
"""

RECHECK: Final = 60.0
"""Seconds after which all jobs of a scheduler that reports changes are looked at, too."""

FIRST_PAUSE: Final = 0.05
"""Seconds before the second look at states."""

FIRST_LOG_PAUSE: Final = 0.005
"""Seconds before the second look at logs, and at logs that have grown."""

LINGER: Final = 0.1
"""Seconds for which a thread waits for the next subscriber.

An orchestrator's jobs may follow each other within milliseconds.
"""

_NEVER: Final = float("inf")
_GOODBYE: Final = 0.2

_followers: dict[tuple[int, int, type[_Follower]], _Follower] = {}
_lock = fork_lock()


def watch(
    scheduler: SchedulerBase,
    handle: str,
    callback: Callable[[Observation], object] | None = None,
    *,
    patience: float = DEFAULT_PATIENCE,
    unknown_for: float = 0.0,
    poll_interval: float = POLL_INTERVAL,
) -> Subscription:
    """Watch a job, and report the first observation and each change until the job has ended.

    Args:
        scheduler: the scheduler of the job.
        handle: the job.
        callback: gets the observations in a thread for the scheduler. It must return soon, like a
            queue's ``put``. If it returns False, the subscription ends. Without a callback,
            `Subscription.next` returns the observations.
        patience: the unreachable timeout, in seconds of UNKNOWN, before the last observation.
        unknown_for: seconds of UNKNOWN that were already waited for.
        poll_interval: longest pause in seconds between two looks, if the scheduler does not report
            changes.

    Raises:
        MalformedAppHandleException: if it is not a handle.
        ConfigError: if the patience is not a number of 0 or more.
    """
    check_seconds("patience", patience, zero=True)
    app_id = parse_app_handle(handle).app_id
    return _subscribe(
        _States, scheduler, app_id, handle, callback, poll_interval, patience, unknown_for
    )


def read_logs(
    scheduler: SchedulerBase,
    app_id: str,
    read: Callable[[], bool],
    *,
    longest: float | None = None,
) -> Subscription:
    """Call ``read`` with growing pauses, in a thread for the scheduler.

    ``read`` passes on the new lines and returns whether there were any. ``longest`` is the longest
    pause in seconds between two calls, by default the scheduler's.
    """
    if longest is None:
        longest = scheduler.log_pause
    return _subscribe(_Logs, scheduler, app_id, f"the logs of {app_id}", read, longest)


def _subscribe(
    kind: type[_Follower],
    scheduler: SchedulerBase,
    app_id: str,
    handle: str,
    callback: Callable[..., object] | None,
    longest: float,
    *counts: Any,
) -> Subscription:
    # a follower keeps its scheduler alive, so no other object has its id
    key = (os.getpid(), id(scheduler), kind)
    with _lock:
        follower = _followers.get(key)
        if follower is None:
            follower = kind(scheduler, lambda: _followers.pop(key))
            follower.thread.start()  # the new thread waits for the lock
            _followers[key] = follower
        wake = follower.changes.add
        subscription = Subscription(app_id, handle, callback, longest, wake, *counts)
        follower.subscriptions.append(subscription)
    wake()
    return subscription


@atexit.register
def release(scheduler: SchedulerBase | None = None) -> None:
    """End the threads that only wait for the next subscriber, of one scheduler or of all."""
    with _lock:
        mine = [each for key, each in _followers.items() if key[0] == os.getpid()]
    for each in mine:
        if scheduler not in (None, each.scheduler):
            continue
        each.linger = 0.0
        each.changes.add()
        is_idle = all(one.closed for one in each.subscriptions)
        if is_idle and each.thread is not threading.current_thread():
            # the wait for a thread whose scheduler hangs is short
            each.thread.join(_GOODBYE)


def watched() -> int:
    """Return the number of jobs that this process watches."""
    with _lock:
        mine = [each for key, each in _followers.items() if key[0] == os.getpid()]
        states = [each for each in mine if isinstance(each, _States)]
        current = [[each for each in one.subscriptions if not each.closed] for one in states]
        return sum(len({each.app_id for each in some}) for some in current)


# -- waiting


def wait(
    scheduler: SchedulerBase,
    handle: str,
    *,
    timeout: float | None = None,
    on_change: Callable[[AppStatus], object] | None = None,
    patience: float = DEFAULT_PATIENCE,
) -> AppStatus | None:
    """Wait until the job has ended, and return its status, or None if there is no such job.

    Args:
        scheduler: the scheduler of the job.
        handle: the job.
        timeout: the longest wait in seconds. None means no limit.
        on_change: is called with each status in this thread.
        patience: the unreachable timeout, in seconds.

    Raises:
        StateUnknown: if the unreachable timeout has passed.
        TransloadTimeout: if ``timeout`` seconds have passed. The job goes on.
    """
    end = _end_of(timeout)
    with watch(scheduler, handle, patience=patience) as news:
        while True:
            seen = news.next(_left(end))
            if seen is not None and _has_ended(seen, on_change):
                return seen.status
            _check_time(handle, end)


async def wait_async(
    scheduler: SchedulerBase,
    handle: str,
    *,
    timeout: float | None = None,
    on_change: Callable[[AppStatus], object] | None = None,
    patience: float = DEFAULT_PATIENCE,
) -> AppStatus | None:
    """Wait like `wait`, without blocking the event loop."""
    end = _end_of(timeout)
    with watch(scheduler, handle, patience=patience) as news:
        while True:
            seen = await news.next_async(_left(end))
            if seen is not None and _has_ended(seen, on_change):
                return seen.status
            _check_time(handle, end)


def _end_of(timeout: float | None) -> float | None:
    """Return the point in time at which a timeout ends, or None if there is no timeout."""
    if timeout is None:
        return None
    return time.monotonic() + timeout


def _left(end: float | None) -> float | None:
    """Return the seconds until a point in time, at least 0, or None if there is none."""
    if end is None:
        return None
    return max(0.0, end - time.monotonic())


def _has_ended(seen: Observation, on_change: Callable[[AppStatus], object] | None) -> bool:
    if seen.status is not None and not seen.exhausted and on_change is not None:
        on_change(seen.status)
    return ended(seen)


def _check_time(handle: str, end: float | None) -> None:
    if _left(end) == 0.0:
        raise TransloadTimeout(f"{handle} has not ended in the time allowed; it goes on")


# -- the threads


class _Follower(ABC):
    """Serves all subscriptions to one scheduler in one thread, which ends soon after the last one.

    Then it calls ``ended`` with the lock of all followers.
    """

    name: ClassVar[str]

    def __init__(self, scheduler: SchedulerBase, ended: Callable[[], object]) -> None:
        self.scheduler = scheduler
        self.subscriptions: list[Subscription] = []
        self.linger = LINGER
        self.changes = Changes()
        self.thread = threading.Thread(target=self._run, daemon=True, name=self.name)
        self._ended = ended

    @abstractmethod
    def serve(self, mine: list[Subscription], changed: set[str]) -> float:
        """Do what is due, and return when to be called again, by the monotonic clock."""

    def close(self) -> None:  # noqa: B027 - nothing to release is the default
        """Release what the thread holds."""

    def _run(self) -> None:
        changed: set[str] = set()
        end = _NEVER
        while True:
            with _lock:
                self.subscriptions = [each for each in self.subscriptions if not each.closed]
                mine = list(self.subscriptions)  # who comes during a look gets the next one
                now = time.monotonic()
                end = _NEVER if mine else min(end, now + self.linger)
                if now >= end:
                    self._ended()
                    break
            due = self.serve(mine, changed) if mine else end
            changed = self.changes.wait(max(0.0, min(due - time.monotonic(), RECHECK)))
        self.close()


class _States(_Follower):
    """Follows the states of jobs."""

    name = "transload-states"

    def __init__(self, scheduler: SchedulerBase, ended: Callable[[], object]) -> None:
        super().__init__(scheduler, ended)
        self._next = 0.0  # when to look at all jobs
        self._pause = FIRST_PAUSE
        self._seen: dict[str, tuple[object, ...]] = {}
        self._events = EventThreads()
        self._watch: Watch | None = None
        self._watch_again = 0.0
        self._members: list[str] = []

    def serve(self, mine: list[Subscription], changed: set[str]) -> float:
        """Look at the jobs that are due or may have changed."""
        self._update_watch(list(dict.fromkeys(each.app_id for each in mine)))
        now = time.monotonic()
        if now >= self._next:
            self._next = _NEVER
            due = {each.app_id for each in mine}
        else:
            due = {each.app_id for each in mine if each.app_id in changed or now >= each.due}
        if due:
            self._ask(due, mine)
        return min(self._next, *(each.due for each in mine))

    def _ask(self, apps: set[str], mine: list[Subscription]) -> None:
        """Query jobs in one request, and report their statuses to their subscribers."""
        began = time.monotonic()
        found = self._describe(apps)
        took = time.monotonic() - began
        news = False
        for each in mine:
            if each.app_id in found and self._report(each, found[each.app_id]):
                news = True
        members = {each.app_id for each in mine if not each.closed}
        self._seen = {app_id: key for app_id, key in self._seen.items() if app_id in members}
        if news:
            self._pause = FIRST_PAUSE
        else:
            self._pause = backoff(self._pause, min(each.longest for each in mine))
        pause = self._pause
        latest = _NEVER
        any_unknown = any(key[0] is AppState.UNKNOWN for key in self._seen.values())
        if self._watch is not None and not any_unknown:
            pause = RECHECK
            latest = self._next  # a job that changes often does not put off the look at all
        self._next = min(latest, time.monotonic() + max(pause, SHARE * took))

    def _report(self, each: Subscription, status: AppStatus | None) -> bool:
        """Offer a status to a subscriber, and return whether it has changed.

        Plugins hear of a new state first, in another thread, since they may be slow.
        """
        key = _news_key(status)
        before = self._seen.get(each.app_id)
        is_news = key != before
        tells = False
        if is_news:
            self._seen[each.app_id] = key
            is_new_state = before is None or before[:2] != key[:2]
            tells = status is not None and is_new_state and _plugins_listen()
        if not tells and not self._events.is_busy(each.app_id):
            self._offer(each, status, key)
            return is_news
        each.due = _NEVER
        if tells or key != each.posted:
            each.posted = key
            self._events.post(each.app_id, partial(self._deliver, each, status, key, tells))
        return is_news

    def _deliver(
        self, each: Subscription, status: AppStatus | None, key: tuple[object, ...], tells: bool
    ) -> None:
        """Report a status to plugins, and then to the subscriber, who may end this process."""
        if tells and status is not None:
            emit(each.handle, status)
        self._offer(each, status, key)
        self.changes.add()

    @staticmethod
    def _offer(each: Subscription, status: AppStatus | None, key: tuple[object, ...]) -> None:
        """Offer a status to a subscriber."""
        each.offer(status, key)
        left = patience_left(each.patience, each.unknown_since)
        each.due = time.monotonic() + max(0.0, left)

    def _describe(self, apps: set[str]) -> dict[str, AppStatus | None]:
        try:
            found = self.scheduler.describe(list(apps))
            for description in found.values():
                reconcile(self.scheduler, description)
        except Exception as exc:
            message = str(exc)
            if not isinstance(exc, SchedulerUnavailable):
                _logger().exception("scheduler %s failed to answer", self.scheduler.name)
                message = f"{type(exc).__name__}: {exc}"
            return {app_id: AppStatus(AppState.UNKNOWN, msg=message) for app_id in apps}
        statuses: dict[str, AppStatus | None] = {}
        for app_id in apps:
            if app_id not in found:  # a job without an answer may still exist
                message = "the scheduler did not answer for this job"
                statuses[app_id] = AppStatus(AppState.UNKNOWN, msg=message)
                continue
            description = found[app_id]
            statuses[app_id] = None if description is None else description.status
        return statuses

    # -- the scheduler's watch

    def _update_watch(self, members: list[str]) -> None:
        """Have the scheduler report changes of these jobs, if it can."""
        try:
            if self._watch is None and time.monotonic() >= self._watch_again:
                self._watch_again = _NEVER
                self._watch = self.scheduler.watch(self.changes.add)
                self._members = []
            if self._watch is not None and members != self._members:
                self._watch.update(members)
                self._members = members
        except Exception as exc:
            why = f"{type(exc).__name__}: {exc}"
            _logger().warning("watch of scheduler %s broke (%s)", self.scheduler.name, why)
            self.close()
            self._watch_again = time.monotonic() + RECHECK

    def close(self) -> None:
        """Close the scheduler's watch."""
        watch = self._watch
        self._watch = None
        if watch is not None:
            try:
                watch.close()
            except Exception:
                _logger().exception(
                    "watch of scheduler %s could not be closed", self.scheduler.name
                )


class _Logs(_Follower):
    """Has those read who follow logs."""

    name = "transload-logs"

    def serve(self, mine: list[Subscription], changed: set[str]) -> float:
        """Have those read who are due."""
        for each in mine:
            if time.monotonic() >= each.due:
                self._read(each)
        return min(each.due for each in mine)

    def _read(self, each: Subscription) -> None:
        """Have one read, and set when it is due again."""
        began = time.monotonic()
        computed = time.thread_time()
        found = bool(each.call())
        each.cost = time.thread_time() - computed
        if found:
            each.pause = FIRST_LOG_PAUSE
            shared = 0.0
        else:
            each.pause = backoff(each.pause or FIRST_LOG_PAUSE, each.longest)
            shared = SHARE * sum(one.cost for one in self.subscriptions)
        now = time.monotonic()
        each.due = now + max(each.pause, now - began, shared)


def _news_key(status: AppStatus | None) -> tuple[object, ...]:
    """Return the key of a status. Subscribers get a status whose key has changed.

    For a waiting job, the reason is part of the key. For a running job, so are its progress in
    whole percents, its interruptions, and whether it has stalled.
    """
    if status is None:
        return ("gone",)
    percent = None
    if status.progress is not None:
        percent = status.progress.percent()
    return (
        status.state,
        status.num_restarts,
        status.cancel_requested,
        status.why_waiting(),
        status.interruptions,
        status.is_stalled,
        percent,
    )


def _plugins_listen() -> bool:
    """Tell whether any plugin wants to know of changes of state."""
    from transload.plugins import get_plugins

    return get_plugins().listen()


def emit(handle: str, status: AppStatus) -> None:
    """Report a new state of a job to plugins."""
    from transload.plugins import AppEvent, get_plugins

    get_plugins().emit(AppEvent(handle, status.state, status.num_restarts, status, time.time()))


def _logger() -> Any:
    return logging.getLogger("transload.schedulers")
