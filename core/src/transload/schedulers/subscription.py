"""A subscriber of an app: what it is told, and how it waits for that."""

from __future__ import annotations

import contextvars
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
    """What was seen of an app."""

    handle: str
    status: AppStatus | None  # None: it provably does not exist (any more)
    exhausted: bool  # its state was unknown for longer than the subscriber's patience
    unknown_for: float  # seconds of unbroken UNKNOWN
    final: bool  # nothing comes after it: the app has ended or is gone, or patience is exhausted


def observed(
    handle: str, status: AppStatus | None, patience: float, since: float | None
) -> Observation:
    """Return what was seen of an app whose state has been UNKNOWN since then (see
    `unknown_since`).
    """
    exhausted = patience_left(patience, since) <= 0
    final = exhausted or status is None or is_terminal(status.state)
    return Observation(handle, status, exhausted, unknown_for(since), final)


def ended(seen: Observation) -> bool:
    """Tell whether the app has ended or is gone.

    Raises:
        StateUnknown: if patience is exhausted.
    """
    if seen.exhausted:
        raise StateUnknown(
            seen.handle, seen.unknown_for, seen.status.msg if seen.status is not None else ""
        )
    return seen.final


class Subscription:
    """A subscriber of one app: of its state, or of the growth of its logs. Use it in a ``with``
    block, or close it.

    The subscriber is called in a thread of the scheduler, in the context in which it subscribed.
    Without a callback, what is seen is kept for `next` and `next_async`.

    Args:
        callback: whom to call; None: nobody.
        longest: longest pause in seconds between two looks, where the scheduler does not push.
        wake: wakes the thread.
        patience: seconds of UNKNOWN that are waited through.
        unknown_for: seconds of UNKNOWN that somebody waited through before.
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
        """When the thread looks again, by the monotonic clock."""
        self.rest = 0.0
        """Before this time the thread does not look again, whatever happens."""
        self.pause = 0.0
        """Seconds of the last pause between two looks."""
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
        """End the subscription: no call begins after this has returned.

        Args:
            seconds: how long to wait for the end of a call that is under way; -1: for ever.

        Returns:
            True if no call is under way.
        """
        if not self.closed:
            self.closed = True
            self._wake()
        done = self._calling.acquire(timeout=seconds)
        if done:
            self._calling.release()
        return done

    # -- in the thread of the scheduler

    def call(self, *news: object) -> object:
        """Call the subscriber, if it is still there, and return its answer; an error of its own
        ends it.
        """
        with self._calling:
            if self.closed:
                return False
            try:
                return self._context.run(self._callback, *news)
            except Exception:
                import logging

                self.closed = True
                logging.getLogger("transload.schedulers").exception(
                    "subscriber of %s failed; it gets no more", self.handle
                )
                return False

    def offer(self, status: AppStatus | None, key: object) -> None:
        """Hand over what was seen, if it is news to this subscriber: another key than before."""
        if status is None:
            self.unknown_since = None
        else:
            self.unknown_since = unknown_since(status.state, self.unknown_since)
        seen = observed(self.handle, status, self.patience, self.unknown_since)
        if key != self._seen or seen.exhausted:
            self._seen = key
            if self.call(seen) is False or seen.final:
                self.closed = True

    # -- one by one

    def wake(self) -> None:
        """Make a wait for the next observation return. It may be called from anywhere, a signal
        handler too.
        """
        self._put(None)

    def _put(self, seen: Observation | None) -> bool:
        self._news.put(seen)
        if self._more is not None:
            loop, more = self._more
            try:
                loop.call_soon_threadsafe(more.set)
            except RuntimeError:
                return False  # the loop was closed meanwhile: nobody listens
        return True

    def next(self, seconds: float | None) -> Observation | None:
        """Return the next observation; None after so many seconds, or if it was woken."""
        if seconds is not None:
            seconds = min(max(seconds, 0.0), _LONGEST)
        try:
            return self._news.get(timeout=seconds)
        except queue.Empty:
            return None

    async def next_async(self, seconds: float | None) -> Observation | None:
        """Do what `next` does, without blocking the event loop."""
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
                # not wait_for: before Python 3.12 it swallows a cancel that comes together with an
                # observation
                async with asyncio.timeout(seconds):
                    await more.wait()
            except TimeoutError:
                return None
