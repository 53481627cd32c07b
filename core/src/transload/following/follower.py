"""Following apps until they end: all waiting of the runner, the command line and the hosts goes through here."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transload.errors import StateUnknown, TransloadTimeout
from transload.following.patience import DEFAULT_PATIENCE, Patience
from transload.following.workers import Logs, LogSubscription, Observation, States, Subscription, Worker
from transload.specs import AppStatus, parse_app_handle

if TYPE_CHECKING:
    import asyncio

    from transload.schedulers.api import SchedulerBase

_LONGEST: float = threading.TIMEOUT_MAX
POLL_INTERVAL = 5.0
"""Seconds between two questions, at most, where the scheduler cannot push."""


class Follower:
    """Follows any number of apps on any number of schedulers. A slow scheduler delays nobody but its own apps.

    There are threads only while somebody waits: for each scheduler one for states and one for logs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[int, States] = {}
        self._logs: dict[int, Logs] = {}

    @property
    def watched(self) -> int:
        """How many apps are being watched."""
        with self._lock:
            return sum(len(worker.apps) for worker in self._states.values())

    def watch(
        self,
        scheduler: SchedulerBase,
        handle: str,
        callback: Callable[[Observation], object],
        *,
        patience: float | Patience = DEFAULT_PATIENCE,
        poll_interval: float = POLL_INTERVAL,
    ) -> Subscription:
        """Call ``callback`` with the first observation of an app and with each change, in a thread of the scheduler.

        Args:
            scheduler: where the app is.
            handle: the app.
            callback: must return soon, for instance a queue's ``put``; returning False ends the subscription.
            patience: seconds of unbroken UNKNOWN before the final, exhausted observation.
            poll_interval: longest pause in seconds between two questions, where the scheduler cannot push.

        Raises:
            MalformedAppHandleException: if it is not a handle.
        """
        app_id = parse_app_handle(handle).app_id
        counted = patience if isinstance(patience, Patience) else Patience(patience)
        with self._lock:
            worker = self._worker(self._states, States, scheduler)
            subscription = Subscription(handle, callback, counted, poll_interval, worker.wake)
            worker.add(app_id, subscription)
        worker.wake()
        return subscription

    def read_logs(
        self, scheduler: SchedulerBase, app_id: str, read: Callable[[], bool], *, longest: float = 0.5
    ) -> LogSubscription:
        """Call ``read`` whenever the logs of an app may have grown, in a thread of the scheduler.

        Args:
            scheduler: where the app is.
            app_id: the app.
            read: reads and hands on what is there; tells whether there was anything.
            longest: seconds between two calls, at most, where the scheduler does not tell of growth.
        """
        with self._lock:
            worker = self._worker(self._logs, Logs, scheduler)
            subscription = LogSubscription(app_id, read, longest, worker.wake)
            worker.subscriptions.append(subscription)
        worker.wake()
        return subscription

    def _worker(self, workers: dict[int, Any], kind: type[Worker], scheduler: SchedulerBase) -> Any:
        key = id(scheduler)  # a worker keeps its scheduler: while it is here, no other one has that id
        worker = workers.get(key)
        if worker is None:
            worker = workers[key] = kind(scheduler, self._lock, lambda: workers.pop(key, None))
            worker.thread.start()
        return worker

    # -- fronts

    def feed(self, scheduler: SchedulerBase, handle: str, **options: Any) -> Feed:
        """Return the observations of an app, to be waited for one by one; options as for `watch`."""
        return Feed(self, scheduler, handle, options)

    def wait(
        self,
        scheduler: SchedulerBase,
        handle: str,
        *,
        timeout: float | None = None,
        on_change: Callable[[AppStatus], object] | None = None,
        **options: Any,
    ) -> AppStatus | None:
        """Block until the app has ended; None if there is no such app.

        Args:
            scheduler: where the app is.
            handle: the app.
            timeout: seconds to wait at most; None: no limit.
            on_change: called with each status that is seen, in this thread.
            options: as for `watch`.

        Raises:
            StateUnknown: if patience is exhausted.
            TransloadTimeout: if ``timeout`` seconds passed; the app goes on.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self.feed(scheduler, handle, **options) as feed:
            while True:
                seen = feed.next(_left(end))
                if _settled(handle, seen, end, on_change):
                    assert seen is not None
                    return seen.status

    async def wait_async(
        self,
        scheduler: SchedulerBase,
        handle: str,
        *,
        timeout: float | None = None,
        on_change: Callable[[AppStatus], object] | None = None,
        **options: Any,
    ) -> AppStatus | None:
        """Do what `wait` does, without blocking the event loop."""
        end = None if timeout is None else time.monotonic() + timeout
        with self.feed(scheduler, handle, **options) as feed:
            while True:
                seen = await feed.next_async(_left(end))
                if _settled(handle, seen, end, on_change):
                    assert seen is not None
                    return seen.status

    def close(self) -> None:
        """End all subscriptions and threads."""
        with self._lock:
            workers: list[Worker] = [*self._states.values(), *self._logs.values()]
            for states in self._states.values():
                for app in states.apps.values():
                    for each in app.subscriptions:
                        each.closed = True
            for logs in self._logs.values():
                for reader in logs.subscriptions:
                    reader.closed = True
        for worker in workers:
            worker.wake()
        for worker in workers:
            if worker.thread is not threading.current_thread():
                worker.thread.join()


class Feed:
    """The observations of one app, one by one: `next` waits in a thread, `next_async` in an event loop.

    Used in a ``with`` block. `wake` may be called from anywhere, a signal handler too.
    """

    def __init__(self, follower: Follower, scheduler: SchedulerBase, handle: str, options: dict[str, Any]) -> None:
        self._args = (follower, scheduler, handle, options)
        self._seen: queue.SimpleQueue[Observation | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._more: asyncio.Event | None = None
        self._subscription: Subscription | None = None

    def __enter__(self) -> Feed:
        follower, scheduler, handle, options = self._args
        self._subscription = follower.watch(scheduler, handle, self._put, **options)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._subscription is not None:
            self._subscription.close()

    def wake(self) -> None:
        """Make a wait for the next observation return."""
        self._put(None)

    def _put(self, seen: Observation | None) -> bool:
        self._seen.put(seen)
        if self._loop is not None and self._more is not None:
            try:
                self._loop.call_soon_threadsafe(self._more.set)
            except RuntimeError:
                return False  # the loop was closed meanwhile: nobody listens
        return True

    def next(self, seconds: float | None) -> Observation | None:
        """Return the next observation; None after so many seconds, or if it was woken."""
        try:
            return self._seen.get(timeout=None if seconds is None else min(max(seconds, 0.0), _LONGEST))
        except queue.Empty:
            return None

    async def next_async(self, seconds: float | None) -> Observation | None:
        """Do what `next` does, without blocking the event loop."""
        import asyncio

        if self._more is None:
            self._more, self._loop = asyncio.Event(), asyncio.get_running_loop()
        while True:
            self._more.clear()
            try:
                return self._seen.get_nowait()
            except queue.Empty:
                pass
            try:
                # not wait_for: before Python 3.12 it swallows a cancel that comes together with an observation
                async with asyncio.timeout(seconds if seconds is None else max(seconds, 0.0)):
                    await self._more.wait()
            except TimeoutError:
                return None


def _left(end: float | None) -> float | None:
    """Return the seconds until a point in time, 0 or more; None if there is none."""
    return None if end is None else max(0.0, end - time.monotonic())


def _settled(
    handle: str, seen: Observation | None, end: float | None, on_change: Callable[[AppStatus], object] | None
) -> bool:
    """Tell whether an observation ends a wait; raise if it ends badly."""
    if seen is not None:
        if seen.exhausted:
            raise StateUnknown(handle, seen.unknown_for, seen.status.msg if seen.status is not None else "")
        if seen.status is not None and on_change is not None:
            on_change(seen.status)
        if seen.final:
            return True
    if _left(end) == 0.0:
        raise TransloadTimeout(f"{handle} has not ended in the time allowed; it goes on")
    return False


_follower: Follower | None = None
_follower_lock = threading.Lock()


def get_follower() -> Follower:
    """Return the follower of this process."""
    global _follower
    with _follower_lock:
        if _follower is None:
            _follower = Follower()
        return _follower


def _after_fork() -> None:
    # in the child its threads are gone, and its locks may be held by one of them
    global _follower, _follower_lock
    _follower, _follower_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
