"""Waiting for the end of an app: woken by its scheduler where that can be, asking with back-off where not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from transload.errors import SchedulerUnavailable, TransloadTimeout
from transload.schedulers.api import tend
from transload.specs import AppState, AppStatus, parse_app_handle

if TYPE_CHECKING:
    from transload.schedulers.api import SchedulerBase

FIRST_PAUSE = 0.05
"""Seconds before the second question to a scheduler that cannot push changes."""

LONGEST_PAUSE = 5.0
"""Seconds between questions, once nothing has changed for a while."""


class Deadline:
    """A point in time that may never come.

    Args:
        timeout: seconds from now; None: never.
    """

    def __init__(self, timeout: float | None) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout

    def left(self) -> float | None:
        """Return the seconds left, 0 or more; None if there is no end."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def check(self, app_handle: str, status: AppStatus) -> None:
        """Raise if the time has run out.

        Raises:
            TransloadTimeout: saying what the app was doing.
        """
        if self.left() == 0.0:
            raise TransloadTimeout(f"{app_handle} is still {status.state} after the time allowed; it goes on")


def pauses() -> Iterator[float]:
    """Yield the growing pauses between questions, in seconds."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 1.5, LONGEST_PAUSE)


def query(scheduler: SchedulerBase, app_id: str, *, owner: bool = False) -> AppStatus | None:
    """Return the status of an app; UNKNOWN when the scheduler cannot be asked now; None if there is no such app.

    Args:
        scheduler: its scheduler.
        app_id: the app.
        owner: the caller waits for it as its owner: what is due is done.
    """
    try:
        description = scheduler.describe(app_id)
        if owner:
            tend(scheduler, description)
    except SchedulerUnavailable as exc:
        return AppStatus(AppState.UNKNOWN, msg=str(exc))
    return None if description is None else description.status


def query_many(scheduler_of: Callable[[str], SchedulerBase], app_handles: Sequence[str]) -> dict[str, AppStatus | None]:
    """Return `query` for many handles, in their order, with one question per scheduler."""
    grouped: dict[str, dict[str, str]] = {}
    for handle in app_handles:
        parsed = parse_app_handle(handle)
        grouped.setdefault(parsed.scheduler_backend, {})[handle] = parsed.app_id
    found: dict[str, AppStatus | None] = {}
    for name, ids in grouped.items():
        try:
            described = scheduler_of(name).describe_many(list(ids.values()))
        except SchedulerUnavailable as exc:
            found.update(dict.fromkeys(ids, AppStatus(AppState.UNKNOWN, msg=str(exc))))
            continue
        for handle, app_id in ids.items():
            description = described.get(app_id)
            found[handle] = None if description is None else description.status
    return {handle: found[handle] for handle in app_handles}


def wait(
    scheduler: SchedulerBase,
    app_id: str,
    app_handle: str,
    timeout: float | None,
    observe: Callable[[AppStatus], None],
) -> AppStatus | None:
    """Block until the app has ended; None if there is no such app.

    Args:
        scheduler: its scheduler.
        app_id: the app.
        app_handle: its handle, for messages.
        timeout: seconds; None: no limit.
        observe: called with the status at each change of state.

    Raises:
        TransloadTimeout: when the time ran out; the app goes on.
    """
    deadline = Deadline(timeout)
    watch = scheduler.watch()
    try:
        if watch is not None:
            watch.update([app_id])
        pause = pauses()
        last: tuple[AppState, int] | None = None
        while True:
            status = query(scheduler, app_id, owner=True)
            if status is None:
                return None
            if (status.state, status.num_restarts) != last:
                last = (status.state, status.num_restarts)
                pause = pauses()
                observe(status)
            if status.is_terminal():
                return status
            deadline.check(app_handle, status)
            if watch is not None:
                watch.wait(deadline.left())
            else:
                time.sleep(_shorter(next(pause), deadline.left()))
    finally:
        if watch is not None:
            watch.close()


async def wait_async(
    scheduler: SchedulerBase,
    app_id: str,
    app_handle: str,
    timeout: float | None,
    observe: Callable[[AppStatus], None],
) -> AppStatus | None:
    """Do what `wait` does without blocking the event loop, and without a thread where the watch has a descriptor."""
    import asyncio

    deadline = Deadline(timeout)
    watch = scheduler.watch()
    descriptor = _descriptor(watch)
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    try:
        if watch is not None and descriptor is not None:
            watch.update([app_id])
            loop.add_reader(descriptor, changed.set)
        pause = pauses()
        last: tuple[AppState, int] | None = None
        while True:
            changed.clear()
            if scheduler.capabilities.reachable_from == "network":
                status = await asyncio.to_thread(query, scheduler, app_id, owner=True)
            else:
                status = query(scheduler, app_id, owner=True)
            if status is None:
                return None
            if (status.state, status.num_restarts) != last:
                last = (status.state, status.num_restarts)
                pause = pauses()
                observe(status)
            if status.is_terminal():
                return status
            deadline.check(app_handle, status)
            if descriptor is None:
                await asyncio.sleep(_shorter(next(pause), deadline.left()))
                continue
            try:
                async with asyncio.timeout(deadline.left()):  # wait_for may swallow a cancel (Python 3.11)
                    await changed.wait()
            except TimeoutError:
                continue
            _drain(watch)
    finally:
        if descriptor is not None:
            loop.remove_reader(descriptor)
        if watch is not None:
            watch.close()


def _descriptor(watch: Any) -> int | None:
    """Return the file descriptor that becomes readable when something changed, if the watch has one."""
    fileno = getattr(watch, "fileno", None)
    return fileno() if callable(fileno) and hasattr(watch, "drain") else None


def _drain(watch: Any) -> None:
    watch.drain()


def _shorter(pause: float, left: float | None) -> float:
    return pause if left is None else min(pause, left)
