"""Follow jobs. The runner, the command line and the adapters all wait through this module.

For each scheduler there is a thread for states and one for logs, but only while there are
subscriptions, and a moment longer. So a slow scheduler only delays its own jobs.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SchedulerUnavailable, TransloadTimeout
from transload.runtime.forks import fork_lock
from transload.schedulers.api import reconcile
from transload.schedulers.event_threads import EventThreads
from transload.schedulers.patience import DEFAULT_PATIENCE, backoff, check_seconds, patience_left
from transload.schedulers.subscription import Observation, Subscription, ended
from transload.specs import AppState, AppStatus, parse_app_handle

if TYPE_CHECKING:
    from transload.schedulers.api import Change, SchedulerBase, Watch

__all__ = ["release"]


POLL_INTERVAL: Final = 5.0
"""The longest pause in seconds between two queries, if the scheduler cannot push."""

SHARE: Final = 20.0
"""A pause is at least this many times as long as the query before it.

So queries take at most five per cent of the time.
"""

RECHECK: Final = 60.0
"""Seconds after which all jobs of a scheduler that pushes are queried, in case it missed one."""

FIRST_PAUSE: Final = 0.05
"""Seconds before the second query of a scheduler that cannot push."""

LINGER: Final = 0.1
"""Seconds for which a thread waits for the next subscriber.

An orchestrator's jobs may follow each other within milliseconds.
"""

_NEVER: Final = float("inf")
_GOODBYE: Final = 0.2
_FIRST_LOOK: Final = 0.005
_LOG_RECHECK: Final = 10.0
_EMPTY_WAITS: Final = 100

_followers: dict[tuple[int, int, bool], Follower] = {}
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
        poll_interval: longest pause in seconds between two queries, if the scheduler cannot push.

    Raises:
        MalformedAppHandleException: if it is not a handle.
        ConfigError: if the patience is not a number of 0 or more.
    """
    check_seconds("patience", patience, zero=True)
    app_id = parse_app_handle(handle).app_id
    return _subscribe(
        scheduler, False, app_id, handle, callback, poll_interval, patience, unknown_for
    )


def read_logs(
    scheduler: SchedulerBase, app_id: str, read: Callable[[], bool], *, longest: float = 0.5
) -> Subscription:
    """Call ``read`` whenever the logs of a job may have grown, in a thread for the scheduler.

    ``read`` passes on the new lines and returns whether there were any. ``longest`` is the longest
    pause in seconds between two calls, if the scheduler does not report growth.
    """
    return _subscribe(scheduler, True, app_id, f"the logs of {app_id}", read, longest)


def _subscribe(
    scheduler: SchedulerBase,
    logs: bool,
    app_id: str,
    handle: str,
    callback: Callable[..., object] | None,
    longest: float,
    *counts: Any,
) -> Subscription:
    # a follower keeps its scheduler alive, so no other object has its id
    key = (os.getpid(), id(scheduler), logs)
    with _lock:
        follower = _followers.get(key)
        if follower is None:
            follower = Follower(scheduler, logs, lambda: _followers.pop(key))
            follower.thread.start()  # the new thread waits for the lock
            _followers[key] = follower
        subscription = Subscription(app_id, handle, callback, longest, follower.wake, *counts)
        follower.subscriptions.append(subscription)
    follower.wake()
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
        each.wake()
        is_idle = all(one.closed for one in each.subscriptions)
        if is_idle and each.thread is not threading.current_thread():
            # the wait for a thread whose scheduler hangs is short
            each.thread.join(_GOODBYE)


def watched() -> int:
    """Return the number of jobs that this process watches."""
    with _lock:
        mine = [each for key, each in _followers.items() if key[0] == os.getpid() and not key[2]]
        current = [[each for each in one.subscriptions if not each.closed] for one in mine]
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


# -- the thread


class Follower:
    """Follows the states, or the logs, of the jobs of one scheduler in one thread.

    The thread ends soon after the last subscription. Then it calls ``ended`` with the lock of all
    followers.
    """

    def __init__(self, scheduler: SchedulerBase, logs: bool, ended: Callable[[], object]) -> None:
        self.scheduler = scheduler
        self.subscriptions: list[Subscription] = []
        self.linger = LINGER
        name = "transload-logs" if logs else "transload-states"
        self.thread = threading.Thread(target=self._run, daemon=True, name=name)
        self._logs = logs
        self._ended = ended
        self._woken = threading.Event()
        self._next = _NEVER if logs else 0.0  # when to query all jobs
        self._pause = FIRST_PAUSE
        self._seen: dict[str, tuple[object, ...]] = {}
        self._events = EventThreads()
        self._watch: Watch | None = None
        self._watch_again = 0.0
        self._empty = 0
        self._members: list[str] = []

    def wake(self) -> None:
        """Make the thread check its subscriptions."""
        self._woken.set()
        watch = self._watch
        if watch is not None:
            watch.wake()

    def _run(self) -> None:
        end = _NEVER
        while True:
            self._woken.clear()
            with _lock:
                mine = [each for each in self.subscriptions if not each.closed]
                self.subscriptions = mine
                if mine:
                    end = _NEVER
                else:
                    end = min(end, time.monotonic() + self.linger)
                if time.monotonic() >= end:
                    self._ended()
                    break
            if not mine:
                self._wait(max(0.0, end - time.monotonic()))
                continue
            members = list(dict.fromkeys(each.app_id for each in mine))
            self._update_watch(members)
            first_due = min(self._next, *(each.due for each in mine))
            changes = self._wait(max(0.0, first_due - time.monotonic()))
            self._look(mine, changes)
        self._close_watch()

    def _look(self, mine: list[Subscription], changes: set[Change]) -> None:
        """Query the jobs that are due or have changed."""
        now = time.monotonic()
        changed = {change.app_id for change in changes}
        due = []
        for each in mine:
            if each.app_id in changed:
                each.due = min(each.due, each.rest)
            if now >= each.due or now >= self._next:
                due.append(each)
        if due and self._logs:
            self._next = _NEVER
            for each in due:
                self._read(each)
        elif due:
            self._ask({each.app_id for each in due}, mine)

    # -- states

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
        any_unknown = any(key[0] is AppState.UNKNOWN for key in self._seen.values())
        if self._watch is not None and not any_unknown:
            pause = RECHECK  # the scheduler reports changes by itself
        self._next = time.monotonic() + max(pause, SHARE * took)

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
        self.wake()

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

    # -- logs

    def _read(self, each: Subscription) -> None:
        """Let a subscriber read, and set when it reads again."""
        began = time.monotonic()
        found = bool(each.call())
        now = time.monotonic()
        took = now - began
        each.rest = now
        if took > _FIRST_LOOK:
            # if many replicas write all the time, reading takes at most half of the time
            each.rest = now + took
        if found:
            each.pause = _FIRST_LOOK
        else:
            each.pause = backoff(each.pause or _FIRST_LOOK, each.longest)
        pause = each.pause
        if self._watch is not None and not found:
            pause = _LOG_RECHECK  # the scheduler reports when a log has grown
        each.due = max(each.rest, now + pause)

    # -- the scheduler's watch

    def _update_watch(self, members: list[str]) -> None:
        try:
            if self._watch is None and time.monotonic() >= self._watch_again:
                self._watch_again = _NEVER
                if self._logs:
                    self._watch = self.scheduler.watch(logs=True)
                else:  # a scheduler whose logs cannot be watched need not have the argument
                    self._watch = self.scheduler.watch()
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
        was_short = time.monotonic() - began < seconds / 2
        if was_short and not changes and not self._woken.is_set():
            self._empty += 1
        else:
            self._empty = 0
        if self._empty > _EMPTY_WAITS:
            self._drop_watch("it returns immediately without changes")
        return changes

    def _drop_watch(self, why: str) -> None:
        """Stop using the scheduler's broken watch for a while, and query all jobs in its place."""
        _logger().warning("watch of scheduler %s broke (%s)", self.scheduler.name, why)
        broken = self._watch
        self._watch = None
        self._watch_again = time.monotonic() + RECHECK
        self._next = 0.0
        self._empty = 0
        with contextlib.suppress(Exception):
            if broken is not None:
                broken.close()

    def _close_watch(self) -> None:
        watch = self._watch
        self._watch = None
        if watch is not None:
            try:
                watch.close()
            except Exception:
                _logger().exception(
                    "watch of scheduler %s could not be closed", self.scheduler.name
                )


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
