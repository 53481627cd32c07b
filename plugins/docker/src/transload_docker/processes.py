"""The processes of a container, as this machine's kernel shows them. Elsewhere nothing is known."""

from __future__ import annotations

import contextlib
import glob
import os
from typing import Final

_ROOT: Final = "/sys/fs/cgroup"
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


def has_handler(container_id: str, number: int) -> bool:
    """Tell whether the main process of a container has a handler of its own for a signal.

    That is the first process there, or what its init process runs.
    """
    folders = [
        each for place in _PLACES for each in glob.glob(f"{_ROOT}/{place.format(container_id)}")
    ]
    inner = {pid: _inner_pid(pid) for pid in _members(folders)}
    for pid in inner:
        fields = _status(pid)
        is_main = 1 in (inner[pid], inner.get(int(fields.get("PPid") or 0)))
        if is_main and int(fields.get("SigCgt") or "0", 16) >> (number - 1) & 1:
            return True
    return False


def _members(folders: list[str]) -> list[int]:
    """Return the processes in control groups, those that this process can see."""
    for folder in folders:
        pids = [int(word) for word in _text(f"{folder}/cgroup.procs").split()]
        if pids:
            return [pid for pid in pids if pid > 0]
    return []


def _inner_pid(pid: int) -> int:
    """Return the pid of a process in its innermost namespace, or 0 if it has ended."""
    numbers = _status(pid).get("NSpid", "").split()
    return int(numbers[-1]) if numbers else 0


def _status(pid: int) -> dict[str, str]:
    lines = (line.partition(":") for line in _text(f"/proc/{pid}/status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _text(path: str) -> str:
    """Return the text of a file of the kernel, or "" if it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        with contextlib.suppress(OSError):
            return os.read(descriptor, 1 << 16).decode("utf-8", "replace")
        return ""
    finally:
        os.close(descriptor)
