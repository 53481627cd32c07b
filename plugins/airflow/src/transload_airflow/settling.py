"""Keeping out of a race inside Airflow: a deferred task must not come back before its first process is accounted for.

When a task defers, its process ends well. Its supervisor notices that at once, or only at its next heartbeat (5 s), and
the executor tells the scheduler a moment later. If the trigger has fired by then and the task is queued again, the
scheduler (3.3.2, ``process_executor_events``) takes the late report for the second process's, finds the task not ended,
and fails it. Triggers that look every minute seldom meet that; one that is told of every change does. So the event is
held back until the first process has gone, its supervisor has turned to something else, and the scheduler has had time
for a turn.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

SETTLE_S: Final = 3.0
"""Seconds for the scheduler to read what its executor has heard: a few of its turns."""

LONGEST_SETTLE_S: Final = 30.0
"""The same on a machine that has far too much to do."""

LONGEST_S: Final = 60.0
"""Seconds after which a process that does not go is not waited for any longer."""


def departure() -> dict[str, Any]:
    """Return what a trigger must know of the process that defers, and of its supervisor, as JSON values."""
    from transload.pipelines import where

    pid, parent = os.getpid(), os.getppid()
    return {
        "place": where(),
        "pid": pid,
        "started": _started(pid),
        "parent": parent,
        "doing": _doing(parent),
        "at": time.time(),
    }


async def settled(left: Mapping[str, Any]) -> None:
    """Return once Airflow has certainly taken note of the process that deferred.

    Args:
        left: from `departure`; empty, or from this very process (``dag.test()``): returns at once.
    """
    if not left:
        return
    from transload.pipelines import is_here

    notices = _heartbeat() + 1.0
    here = is_here(str(left["place"]))
    if here and left["pid"] == os.getpid() and left["started"] == _started(os.getpid()):
        return
    if not here or left["started"] is None:
        await asyncio.sleep(max(0.0, float(left["at"]) + notices + _turns() - time.time()))
        return
    await _until(lambda: _started(int(left["pid"])) != left["started"], LONGEST_S)
    await _until(lambda: _doing(int(left["parent"])) != left["doing"], notices)
    await asyncio.sleep(_turns())


def _turns() -> float:
    """Return the seconds that a few turns of the scheduler take; on a busy machine each takes longer."""
    crowd = os.getloadavg()[0] / (2 * (os.cpu_count() or 1))
    return min(SETTLE_S * max(1.0, crowd), LONGEST_SETTLE_S)


async def _until(condition: Callable[[], bool], longest: float) -> None:
    """Wait for what other processes do: nothing tells of it."""
    end = time.monotonic() + longest
    while not condition() and time.monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.2)


def _heartbeat() -> float:
    """Return the seconds within which a supervisor notices for certain that its process has gone."""
    from airflow.providers.common.compat.sdk import conf

    return float(conf.getint("workers", "min_heartbeat_interval", fallback=5))


def _doing(pid: int) -> str | None:
    """Return the title of a process, in which Airflow's workers say what they do; None if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """Return when a process was started, in the kernel's ticks; None if it is gone, or this is no Linux."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
