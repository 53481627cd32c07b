"""Read what containers used from their control groups.

This happens between the end of their program and their removal, since an engine keeps no such
figures. Who comes too late by milliseconds has those of a moment before, since all are read at
first sight and now and then. On another machine nothing can be read.
"""

from __future__ import annotations

import glob
import os
import select
import threading
from contextlib import suppress
from typing import Any, Final

SAMPLE_S: Final = 1.0
_PLACES: Final = (
    "*/{}",
    "*/*/{}",
    "*/docker-{}.scope",
    "*/*/docker-{}.scope",
    "user.slice/*/*/*/docker-{}.scope",
)
"""Patterns of control groups below the root, as engines make them in two ways.

In version 1 the name of a controller stands in front.
"""


class Meter:
    """Waits for the ends of containers' first processes.

    It has a thread of its own while there is something to wait for.

    Args:
        root: where the control groups are mounted.
    """

    def __init__(self, root: str = "/sys/fs/cgroup") -> None:
        self.used: dict[str, dict[str, Any]] = {}  # container id → usage, in JSON form
        self._root = root
        self._watched: dict[
            int, tuple[str, list[str]]
        ] = {}  # of a process → container id, its control groups
        self._polling: Any = None
        self._lock = threading.Lock()

    def follow(self, container_id: str) -> None:
        """Note what a running container uses until it ends, if that can be known."""
        places = control_groups(container_id, self._root)
        # ended, or a system without these calls
        with self._lock, suppress(OSError, ValueError, IndexError, AttributeError):
            if not places or container_id in [known for known, _ in self._watched.values()]:
                return
            # the first in the container, whose number is the last of these
            ranks = {
                pid: _text([f"/proc/{pid}"], "status")
                for pid in _text(places, "cgroup.procs").split()
            }
            pid = min(
                ranks, key=lambda pid: ranks[pid].partition("NSpid:")[2].splitlines()[0].split()[-1]
            )
            with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
                own = [line.rstrip("\n").split(":", 2) for line in file]
            descriptor = os.pidfd_open(int(pid))
            places += [f"{self._root}/{controllers}{path}" for _, controllers, path in own]
            self._watched[descriptor] = container_id, places
            self._read(container_id, places)
            if self._polling is None:
                self._polling = select.epoll()
                threading.Thread(
                    target=self._wait, name="transload-docker-usage", daemon=True
                ).start()
            self._polling.register(descriptor, select.EPOLLIN)

    def _wait(self) -> None:
        while True:
            ended = [descriptor for descriptor, _ in self._polling.poll(SAMPLE_S)]
            for container_id, places in [
                self._watched[each] for each in ended or list(self._watched)
            ]:
                self._read(container_id, places)
            with self._lock:
                for descriptor in ended:
                    del self._watched[descriptor]
                    os.close(descriptor)
                if not self._watched:
                    self._polling.close()
                    self._polling = None
                    return

    def _read(self, container_id: str, places: list[str]) -> None:
        # too late, or a system that tells other things
        with suppress(OSError, ValueError, LookupError):
            # of a group that is being removed, a part is missing
            self.used[container_id] = {**self.used.get(container_id, {}), **usage(places)}


def control_groups(container_id: str, root: str = "/sys/fs/cgroup") -> list[str]:
    """Return the folders of a container's control groups, or [] if they are not on this machine.

    Args:
        container_id: which.
        root: where the control groups are mounted.
    """
    found: list[str] = []
    for place in _PLACES:
        found += glob.glob(f"{root}/{place.format(container_id)}")
    return found


def usage(folders: list[str]) -> dict[str, Any]:
    """Return what a control group used, as fields of `transload.specs.Usage`.

    The peak is the kernel's watermark less the file cache that nobody used at the end, as ``docker
    stats`` counts.

    Raises:
        OSError: if it is gone.
    """
    found: dict[str, Any] = {}
    stat = dict(line.split() for line in _text(folders, "memory.stat").splitlines())
    cache = int(stat.get("total_inactive_file") or stat["inactive_file"])
    with suppress(FileNotFoundError):  # older kernels
        found["peak_memory"] = (
            int(_text(folders, "memory.peak", "memory.max_usage_in_bytes")) - cache
        )
    cpu = _text(
        folders, "cpuacct.usage", "cpu.stat"
    ).split()  # nanoseconds, or a table that usage_usec leads
    nanoseconds = int(cpu[0]) if len(cpu) == 1 else int(cpu[1]) * 1000
    return {**found, "cpu_seconds": round(nanoseconds / 1e9, 3)}


def _text(folders: list[str], *names: str) -> str:
    """Return the text of the first of these files that is there."""
    for path in (f"{folder}/{name}" for name in names for folder in folders):
        with suppress(FileNotFoundError), open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    raise FileNotFoundError(names[0])
