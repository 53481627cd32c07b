"""What an execution waits with: steps, the end of another app, observations, and the kill that an interruption is."""

from __future__ import annotations

import queue
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from transload.pipelines._errors import StateUnknown

if TYPE_CHECKING:
    import asyncio

    from transload.pipelines._attacher import Attached, Pause
    from transload.pipelines._execution import Execution
    from transload.pipelines._poller import Observation

LONGEST_TICK: Final = 1.0
"""Seconds after which a blocked wait looks whether it was killed."""


class KillOnExit:
    """Turns what is no ordinary error (a signal's exception, a cancelled task) into a kill of the app."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._execution.kill()


def wait_for_end(execution: Execution, handle: str) -> None:
    """Block until an app has ended, or the execution is killed.

    Raises:
        StateUnknown: if patience is exhausted.
    """
    until: queue.SimpleQueue[Observation] = queue.SimpleQueue()
    with execution._need_poller().watch(execution.runner, handle, until.put, **execution._polling()):
        while not execution._killed:
            try:
                seen = until.get(timeout=LONGEST_TICK)
            except queue.Empty:
                continue
            if seen.exhausted:
                raise StateUnknown(handle, seen.unknown_for)
            if seen.final:
                return


async def next_of(seen: asyncio.Queue[Observation | None], seconds: float) -> Observation | None:
    """Return the next observation of a queue; None if there is none within so many seconds."""
    import asyncio

    try:
        # not wait_for: before Python 3.12 it swallows a cancel that comes together with an observation
        async with asyncio.timeout(None if seconds == float("inf") else seconds):
            return await seen.get()
    except TimeoutError:
        return None


def advance(steps: Generator[Pause, None, Attached]) -> Pause | Attached:
    """Return the next pause, or the app once it is there (a StopIteration cannot cross a thread's future)."""
    try:
        pause: Pause = next(steps)
    except StopIteration as stop:
        attached: Attached = stop.value
        return attached
    return pause
