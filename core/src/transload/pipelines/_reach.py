"""Where this process runs: from another place an app may not be seen."""

from __future__ import annotations

import os
import sys
from functools import cache


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
