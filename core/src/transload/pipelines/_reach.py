"""From where an app can be waited for."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transload.schedulers.api import Reach


@cache
def where() -> str:
    """Return a text that is equal in two processes only if they see the same machine: one boot, one set of processes.

    On Linux the boot id and the process namespace (two containers of one machine differ); elsewhere host name and
    hardware address.
    """
    if sys.platform == "linux":
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
        except OSError:
            pass
    import platform
    import uuid

    return f"{platform.node()}/{uuid.getnode():x}"


def is_here(place: str) -> bool:
    """Tell whether ``place``, from `where` in another process, is where this process runs."""
    return place == where()


def may_wait_elsewhere(reach: Reach, same_machine: bool = False) -> bool:
    """Tell whether a process other than the submitting one may wait for an app.

    Args:
        reach: ``Capabilities.reachable_from`` of the scheduler.
        same_machine: the other process is known to run on the same machine.

    Returns:
        False for ``process``; for ``host`` only with ``same_machine``; True for ``network``.
    """
    return reach == "network" or (reach == "host" and same_machine)
