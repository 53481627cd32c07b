"""Subscriptions to a job, and the observations that subscribers get."""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from transload.errors import StateUnknown
from transload.schedulers.patience import (
    DEFAULT_PATIENCE,
    patience_left,
    unknown_for,
    unknown_since,
)
from transload.specs import AppStatus, is_terminal

if TYPE_CHECKING:
    import asyncio

_LONGEST: float = threading.TIMEOUT_MAX


class Observation(NamedTuple):
    """An observation of a job."""

    handle: str
    status: AppStatus | None  # None if it certainly does not exist (any more)
    exhausted: bool  # its state was unknown for longer than the unreachable timeout
    unknown_for: float  # seconds of UNKNOWN in a row
    final: bool  # the job has ended or is gone, or the timeout has passed


def observed(
    handle: str, status: AppStatus | None, patience: float, since: float | None
) -> Observation:
    """Return the observation of a status.

    Args:
        handle: the job.
        status: its status, or None if there is no such job.
        patience: the unreachable timeout, in seconds.
        since: what `unknown_since` returned for it.
    """
    exhausted = patience_left(patience, since) <= 0
    final = exhausted or status is None or is_terminal(status.state)
    return Observation(handle, status, exhausted, unknown_for(since), final)


def ended(seen: Observation) -> bool:
    """Tell whether the job has ended or is gone.

    Raises:
        StateUnknown: if the unreachable timeout has passed.
    """
    if seen.exhausted:
        raise StateUnknown(
            seen.handle, seen.unknown_for, seen.status.msg if seen.status is not None else ""
        )
    return seen.final


class Subscription:
    """A subscription to the state of a job, or to the growth of its logs.

    Use it in a ``with`` block, or close it. The callback is called in a thread for the scheduler,
    or in one for plugins, in the context of the subscriber. Without a callback, observations are
    kept for `next` and `next_async`.

    Args:
        callback: the callback, or None.
        longest: longest pause in seconds between two looks.
        wake: wakes the thread.
        patience: the unreachable timeout, in seconds of UNKNOWN.
        unknown_for: seconds of UNKNOWN that were already waited for.
    """

    def __init__(
        self,
        app_id: str,
        handle: str,
        callback: Callable[..., object] | None,
        longest: float,
        wake: Callable[[], object],
        patience: float = DEFAULT_PATIENCE,
        unknown_for: float = 0.0,
    ) -> None:
        self.app_id = app_id
        self.handle = handle
        self.longest = longest
        self.patience = patience
        self.unknown_since: float | None = None
        if unknown_for:
            self.unknown_since = time.monotonic() - unknown_for
        self.closed = False
        self.due = 0.0
        """The time of the next look, by the monotonic clock."""
        self.pause = 0.0
        """Seconds of the last pause between two looks at logs."""
        self.cost = 0.0
        """Seconds of the processor that the last look at logs took."""
        self.posted: object = None
        """The key of the latest status that is offered once plugins have heard of it."""
        self._callback: Callable[..., object] = callback or self._put
        self._wake = wake
        self._seen: object = None
        self._context = contextvars.copy_context()
        self._calling = threading.Lock()
        self._news: queue.SimpleQueue[Observation | None] = queue.SimpleQueue()
        self._more: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self, seconds: float = 0.0) -> bool:
        """End the subscription, so that no call starts after this has returned.

        Args:
            seconds: the longest wait for a running call. -1 means no limit.

        Returns:
            True if no call is running.
        """
        if not self.closed:
            self.closed = True
            self._wake()
        done = self._calling.acquire(timeout=seconds)
        if done:
            self._calling.release()
        return done

    # -- in the thread of the scheduler

    def call(self, *news: object, last: bool = False) -> object:
        """Call the subscriber, unless the subscription has ended, and return its answer.

        An error in the subscriber ends its subscription. The ``last`` call finds it ended.
        """
        with self._calling:
            if self.closed:
                return False
            self.closed = last
            try:
                return self._context.run(self._callback, *news)
            except Exception:
                self.closed = True
                logging.getLogger("transload.schedulers").exception(
                    "subscriber of %s failed and gets no more calls", self.handle
                )
                return False

    def offer(self, status: AppStatus | None, key: object) -> None:
        """Hand over an observation if its key differs from the last one."""
        if status is None:
            self.unknown_since = None
        else:
            self.unknown_since = unknown_since(status.state, self.unknown_since)
        seen = observed(self.handle, status, self.patience, self.unknown_since)
        if key != self._seen or seen.exhausted:
            self._seen = key
            if self.call(seen, last=seen.final) is False:
                self.closed = True

    # -- one by one

    def wake(self) -> None:
        """Make a wait for the next observation return. A signal handler may call it, too."""
        self._put(None)

    def _put(self, seen: Observation | None) -> bool:
        self._news.put(seen)
        if self._more is not None:
            loop, more = self._more
            try:
                loop.call_soon_threadsafe(more.set)
            except RuntimeError:
                return False  # the loop was closed meanwhile, so there is no listener
        return True

    def next(self, seconds: float | None) -> Observation | None:
        """Return the next observation.

        Args:
            seconds: the longest wait. None means no limit.

        Returns:
            The observation, or None after ``seconds``, or after `wake`.
        """
        if seconds is not None:
            seconds = min(max(seconds, 0.0), _LONGEST)
        try:
            return self._news.get(timeout=seconds)
        except queue.Empty:
            return None

    async def next_async(self, seconds: float | None) -> Observation | None:
        """Return the next observation like `next`, without blocking the event loop."""
        import asyncio

        if seconds is not None:
            seconds = max(seconds, 0.0)
        if self._more is None:
            self._more = (asyncio.get_running_loop(), asyncio.Event())
        _, more = self._more
        while True:
            more.clear()
            try:
                return self._news.get_nowait()
            except queue.Empty:
                pass
            try:
                # wait_for is not used, because before Python 3.12 it loses a cancel that arrives
                # together with an observation
                async with asyncio.timeout(seconds):
                    await more.wait()
            except TimeoutError:
                return None
