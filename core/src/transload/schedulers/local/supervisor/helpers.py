"""Our own processes (spawner, keeper, watcher), told from an app's: no app takes them along when it ends.

A job may start a spawner, which then descends from that job's keeper, and with it the apps of others. So each helper
enters its pid and start time in the state folder that it serves, and stands in that folder: whoever ends an app looks
(`tree.is_helper`) before taking a descendant for one of the app's.
"""

from __future__ import annotations

import os

from . import kernel, layout, tree


def enter(home: str, name: bytes) -> None:
    """Make this process a helper of the state folder ``home``, under a short name that process lists show."""
    kernel.set_name(name)
    os.chdir(home)
    if not kernel.LINUX:
        return  # orphans are nobody's descendants there
    try:
        os.close(os.open(_entry(home, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as exc:  # no room: outside of a job nobody looks for it
        os.write(2, f"cannot enter {exc.filename}: {exc.strerror}\n".encode())


def leave(home: str) -> None:
    """Take this process out again, just before its end."""
    layout.unlink(_entry(home, os.getpid()))


def _entry(home: str, pid: int) -> str:
    return f"{home}/helpers/{pid}-{tree.start_time(pid)}"


def forget_dead(home: str) -> None:
    """Remove the entries of helpers that were killed."""
    for name in os.listdir(f"{home}/helpers"):
        pid = name.partition("-")[0]
        if not pid.isdigit() or name != f"{pid}-{tree.start_time(int(pid))}":
            layout.unlink(f"{home}/helpers/{name}")
