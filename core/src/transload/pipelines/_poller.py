"""One thread that watches all apps of all hosts of a process."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from transload.errors import TransloadTimeout
from transload.pipelines._errors import StateUnknown
from transload.pipelines._options import DEFAULT_PATIENCE
from transload.pipelines._patience import Patience
from transload.pipelines._poller_group import Group, WatchedApp
from transload.specs import AppHandle, AppState, AppStatus, is_terminal, parse_app_handle

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.schedulers.api import SchedulerBase

LONGEST_PAUSE: Final = 60.0
"""Seconds after which even a scheduler that pushes changes is asked again."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the poller saw of an app.

    Args:
        handle: the app.
        status: its status; None: it provably does not exist (any more).
        exhausted: its state was unknown for longer than the subscriber's patience.
        unknown_for: seconds of unbroken UNKNOWN.
    """

    handle: AppHandle
    status: AppStatus | None
    exhausted: bool = False
    unknown_for: float = 0.0

    @property
    def final(self) -> bool:
        """True if this is the last observation that the subscription gets."""
        return self.exhausted or self.status is None or is_terminal(self.status.state)


class Subscription:
    """One party's interest in one app. Ends by itself with the final observation."""

    __slots__ = ("_delivered", "_poller", "callback", "closed", "handle", "patience", "poll_interval")

    def __init__(
        self,
        poller: Poller,
        handle: AppHandle,
        callback: Callable[[Observation], object],
        patience: Patience,
        poll: float,
    ) -> None:
        self._poller = poller
        self._delivered = False
        self.handle = handle
        self.callback = callback
        self.patience = patience
        self.poll_interval = poll
        self.closed = False

    def close(self) -> None:
        """End it; the callback is not called any more once this returned (save for one call under way)."""
        if not self.closed:
            self.closed = True
            self._poller._wake()

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
            import logging

            self.closed = True
            logging.getLogger("transload.poller").exception("subscriber of %s failed; it gets no more", self.handle)


class Poller:
    """Watches apps: woken by schedulers that push changes, asking the others about all apps at once, with back-off.

    It has one thread, only while something is watched. An unchanged app costs a share of one query of its scheduler;
    queries take at most a twentieth of the thread's time, however many apps there are.

    Args:
        first_pause: seconds before the second question to a scheduler that cannot push.
    """

    def __init__(self, *, first_pause: float = 0.05) -> None:
        self._first_pause = first_pause
        self._lock = threading.Lock()
        self._groups: dict[int, Group] = {}
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None

    @property
    def watched(self) -> int:
        """How many apps are being watched."""
        with self._lock:
            return sum(len(group.apps) for group in self._groups.values())

    def watch(
        self,
        runner: Runner,
        handle: AppHandle,
        callback: Callable[[Observation], object],
        *,
        patience: float | Patience = DEFAULT_PATIENCE,
        poll_interval: float = 5.0,
    ) -> Subscription:
        """Call ``callback`` with the first observation of an app and with each change, in the poller's thread.

        Args:
            runner: whose scheduler is asked.
            handle: the app.
            callback: must return soon, for instance a queue's ``put``; returning False ends the subscription.
            patience: seconds of unbroken UNKNOWN before the final, exhausted observation.
            poll_interval: longest pause in seconds between two questions, where the scheduler cannot push.

        Raises:
            MalformedAppHandleException: if it is not a handle.
            ConfigError: for an unknown scheduler.
        """
        parsed = parse_app_handle(handle)
        scheduler = runner.scheduler(parsed.scheduler_backend)
        counted = patience if isinstance(patience, Patience) else Patience(patience)
        subscription = Subscription(self, handle, callback, counted, poll_interval)
        with self._lock:
            group = self._group(scheduler)
            app = group.apps.setdefault(parsed.app_id, WatchedApp(handle))
            app.subscriptions.append(subscription)
            group.add(parsed.app_id)
            self._ensure_thread()
        self._wake()
        return subscription

    def wait_for(
        self,
        runner: Runner,
        handle: AppHandle,
        *,
        patience: float = DEFAULT_PATIENCE,
        poll_interval: float = 5.0,
        timeout: float | None = None,
        until: Callable[[AppStatus], bool] | None = None,
    ) -> AppStatus | None:
        """Block until the app has ended, or ``until`` is true of its status; None if there is no such app.

        Raises:
            StateUnknown: if patience is exhausted.
            TransloadTimeout: if ``timeout`` seconds passed; the app goes on.
        """
        import queue

        seen: queue.SimpleQueue[Observation] = queue.SimpleQueue()
        end = None if timeout is None else time.monotonic() + timeout
        with self.watch(runner, handle, seen.put, patience=patience, poll_interval=poll_interval):
            while True:
                try:
                    observation = seen.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
                except queue.Empty as exc:
                    raise TransloadTimeout(f"{handle} has not ended after {timeout} s; it goes on") from exc
                if _settled(observation, until):
                    return observation.status

    async def wait_for_async(
        self,
        runner: Runner,
        handle: AppHandle,
        *,
        patience: float = DEFAULT_PATIENCE,
        poll_interval: float = 5.0,
        timeout: float | None = None,
        until: Callable[[AppStatus], bool] | None = None,
    ) -> AppStatus | None:
        """Do what `wait_for` does, without blocking the event loop."""
        import asyncio

        try:
            async with asyncio.timeout(timeout):
                async for observation in self.stream(runner, handle, patience=patience, poll_interval=poll_interval):
                    if _settled(observation, until):
                        return observation.status
        except TimeoutError as exc:
            raise TransloadTimeout(f"{handle} has not ended after {timeout} s; it goes on") from exc
        raise AssertionError("a stream ends with a final observation")

    async def stream(
        self,
        runner: Runner,
        handle: AppHandle,
        *,
        patience: float | Patience = DEFAULT_PATIENCE,
        poll_interval: float = 5.0,
    ) -> AsyncIterator[Observation]:
        """Yield the observations of an app up to the final one, without blocking the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        seen: asyncio.Queue[Observation] = asyncio.Queue()

        def hand_over(observation: Observation) -> bool:
            try:
                loop.call_soon_threadsafe(seen.put_nowait, observation)
            except RuntimeError:
                return False  # the loop was closed meanwhile: nobody listens
            return True

        with self.watch(runner, handle, hand_over, patience=patience, poll_interval=poll_interval):
            while True:
                observation = await seen.get()
                yield observation
                if observation.final:
                    return

    def close(self) -> None:
        """End all subscriptions and the thread."""
        with self._lock:
            thread = self._thread
            for group in self._groups.values():
                for app in group.apps.values():
                    for subscription in app.subscriptions:
                        subscription.closed = True
        self._wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # -- inside

    def _group(self, scheduler: SchedulerBase) -> Group:
        group = self._groups.get(id(scheduler))
        if group is None:
            group = self._groups[id(scheduler)] = Group(scheduler, self._first_pause)
        return group

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            self._thread = threading.Thread(target=self._run, name="transload-poller", daemon=True)
            self._thread.start()

    def _wake(self) -> None:
        with self._lock:
            if self._pipe is not None:
                try:
                    os.write(self._pipe[1], b"w")
                except BlockingIOError:
                    pass  # full: it will wake up anyway

    def _run(self) -> None:
        while True:
            with self._lock:
                groups = self._sweep()
                if not groups:
                    self._end()
                    return
                assert self._pipe is not None
                wake = self._pipe[0]
            self._block(groups, wake)
            for group in groups:
                group.step(time.monotonic())

    def _sweep(self) -> list[Group]:
        """Drop ended subscriptions, apps without any, and groups without apps; return the groups left."""
        for key, group in list(self._groups.items()):
            group.sweep()
            if not group.apps:
                group.close()
                del self._groups[key]
        return list(self._groups.values())

    def _end(self) -> None:
        self._thread = None
        if self._pipe is not None:
            for end in self._pipe:
                os.close(end)
            self._pipe = None

    @staticmethod
    def _block(groups: list[Group], wake: int) -> None:
        """Wait until a group is due, a scheduler pushes, or somebody wakes us."""
        waiter = select.poll()
        waiter.register(wake, select.POLLIN)
        owners: dict[int, Group] = {}
        pause = LONGEST_PAUSE
        now = time.monotonic()
        for group in groups:
            pause = min(pause, group.pause(now))
            descriptor = group.descriptor
            if descriptor is not None:
                waiter.register(descriptor, select.POLLIN)
                owners[descriptor] = group
        for descriptor, event in waiter.poll(max(0.0, pause) * 1000):
            if event & select.POLLNVAL and descriptor in owners:
                # closed under our hands; asking for it again would only spin
                owners[descriptor].drop_watch("its descriptor was closed")
        try:
            while os.read(wake, 4096):
                pass
        except BlockingIOError:
            pass


def _settled(observation: Observation, until: Callable[[AppStatus], bool] | None) -> bool:
    if observation.exhausted:
        why = observation.status.msg if observation.status is not None else ""
        raise StateUnknown(observation.handle, observation.unknown_for, why)
    if observation.final:
        return True
    return until is not None and observation.status is not None and until(observation.status)


_poller: Poller | None = None
_poller_pid = 0
_poller_lock = threading.Lock()


def get_poller() -> Poller:
    """Return the poller of this process (a forked child gets its own)."""
    global _poller, _poller_pid
    with _poller_lock:
        if _poller is None or _poller_pid != os.getpid():
            _poller, _poller_pid = Poller(), os.getpid()
        return _poller


def _after_fork() -> None:
    global _poller, _poller_lock
    _poller, _poller_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
