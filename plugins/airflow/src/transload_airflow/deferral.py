"""Avoiding two races inside Airflow when a task defers and comes back.

When a task defers, its process ends well. Its supervisor notices that immediately, or only at its
next heartbeat (5 s), and the executor reports it to the scheduler a moment later. The trigger may
have fired before, so that the task is queued again. Then the scheduler (3.3.2,
``process_executor_events``) takes the late report for the second process's. It finds the task not
ended, and fails it. Triggers that look every minute seldom meet that, and one that gets every
change does. So the event is held back until the supervisor has noticed for certain, and the
scheduler has had time for a few turns.

The other race is about the last log lines of a trigger (see `lines_are_read`).
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

ACCOUNTING_S: Final = 4.0
"""Seconds for a supervisor to end its process, and for a scheduler to read the report of that.

The report is that of the scheduler's executor.
"""

LONGEST_ACCOUNTING_S: Final = 30.0
"""The same on a machine that has far too much to do."""

LONGEST_DRAIN_S: Final = 20.0
"""Seconds for a triggerer to read the lines that its trigger has written."""

_deferred_here: Final[set[str]] = set()
"""Names of the deferrals of this process."""


def mark_deferred() -> dict[str, Any]:
    """Return what a trigger must know of the process that defers, as JSON values."""
    name = uuid.uuid4().hex
    _deferred_here.add(name)
    return {"name": name}


async def wait_until_released(left: Mapping[str, Any]) -> None:
    """Return once Airflow has taken note of the process that deferred.

    The seconds are counted from this call, on the clock of this machine. That of the worker may be
    another one.

    Args:
        left: from `mark_deferred`. It returns immediately if this is empty, or from this very
            process (``dag.test()``).
    """
    if not left or left["name"] in _deferred_here:
        return
    # a supervisor notices within a heartbeat that its process has ended
    heartbeat = float(conf.getint("workers", "min_heartbeat_interval", fallback=5))
    crowd = os.getloadavg()[0] / (2 * (os.cpu_count() or 1))
    accounting = min(ACCOUNTING_S * max(1.0, crowd), LONGEST_ACCOUNTING_S)
    await asyncio.sleep(heartbeat + accounting)


async def lines_are_read() -> None:
    """Return once Airflow has read the log lines of this process, which go through a socket.

    The triggerer closes the log of a trigger as soon as it hears that it has fired, by another
    socket. Lines that it has not read by then are lost (seen in 3.3.2).
    """
    end = time.monotonic() + LONGEST_DRAIN_S
    while time.monotonic() < end:
        if not any(_unread_bytes(handler) for handler in logging.getLogger().handlers):
            return
        await asyncio.sleep(0.02)


def _unread_bytes(handler: logging.Handler) -> int:
    """Return how much of what a handler has written waits in its socket.

    0: nothing, or that cannot be found out.
    """
    stream: Any = getattr(handler, "stream", None)
    size = bytes(struct.calcsize("i"))
    try:
        found = fcntl.ioctl(stream.fileno(), termios.TIOCOUTQ, size)
    except (AttributeError, OSError, ValueError):
        return 0
    return int(struct.unpack("i", found)[0])
