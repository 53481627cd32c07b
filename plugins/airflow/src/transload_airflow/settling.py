"""Keeping out of a race inside Airflow: a deferred task must not come back before its first process
is accounted for.

When a task defers, its process ends well. Its supervisor notices that at once, or only at its next
heartbeat (5 s), and the executor tells the scheduler a moment later. If the trigger has fired by
then and the task is queued again, the scheduler (3.3.2, ``process_executor_events``) takes the late
report for the second process's, finds the task not ended, and fails it. Triggers that look every
minute seldom meet that; one that is told of every change does. So the event is held back until the
supervisor has noticed for certain, and the scheduler has had time for a few turns.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import struct
import termios
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from airflow.providers.common.compat.sdk import conf

SETTLE_S: Final = 4.0
"""Seconds for a supervisor to end its process, and for the scheduler to read what its executor has
heard."""

LONGEST_SETTLE_S: Final = 30.0
"""The same on a machine that has far too much to do."""

LONGEST_DRAIN_S: Final = 20.0
"""Seconds for a triggerer to read the lines that its trigger has written."""

_left_here: Final[set[str]] = set()


def mark_deferred() -> dict[str, Any]:
    """Return what a trigger must know of the process that defers, as JSON values."""
    name = uuid.uuid4().hex
    _left_here.add(name)
    return {"name": name, "at": time.time()}


async def wait_until_released(left: Mapping[str, Any]) -> None:
    """Return once Airflow has taken note of the process that deferred.

    Args:
        left: from `mark_deferred`; empty, or from this very process (``dag.test()``): returns at once.
    """
    if left and left["name"] not in _left_here:
        # within which a supervisor notices for certain that its process has gone
        heartbeat = float(conf.getint("workers", "min_heartbeat_interval", fallback=5))
        crowd = os.getloadavg()[0] / (2 * (os.cpu_count() or 1))
        turns = min(
            SETTLE_S * max(1.0, crowd), LONGEST_SETTLE_S
        )  # on a busy machine each takes longer
        await asyncio.sleep(max(0.0, float(left["at"]) + heartbeat + turns - time.time()))


async def lines_are_read() -> None:
    """Return once Airflow has read the log lines of this process, which go through a socket.

    The triggerer closes the log of a trigger as soon as it hears that it has fired, which another
    socket tells it: the lines that it has not read by then are lost (seen in 3.3.2).
    """
    end = time.monotonic() + LONGEST_DRAIN_S
    while time.monotonic() < end:
        if not any(_unread(handler) for handler in logging.getLogger().handlers):
            return
        await asyncio.sleep(0.02)


def _unread(handler: logging.Handler) -> int:
    """Return how much of what a handler has written waits in its socket; 0: none, or that cannot be
    said.
    """
    stream: Any = getattr(handler, "stream", None)
    size = bytes(struct.calcsize("i"))
    try:
        found = fcntl.ioctl(stream.fileno(), termios.TIOCOUTQ, size)
    except (AttributeError, OSError, ValueError):
        return 0
    return int(struct.unpack("i", found)[0])
