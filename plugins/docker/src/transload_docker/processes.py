"""The processes of a container, as this machine's kernel shows them. Elsewhere nothing is known."""

from __future__ import annotations

import contextlib
import os

from transload_docker.usage import control_groups


def is_suspended(container_id: str) -> bool:
    """Tell whether a process of a container is stopped, or its control group is frozen."""
    folders = control_groups(container_id)
    for folder in folders:
        if "frozen 1" in _text(f"{folder}/cgroup.events"):
            return True
        if _text(f"{folder}/freezer.state").strip() in ("FROZEN", "FREEZING"):
            return True
    return any(map(_is_stopped, _members(folders)))


def with_handler(container_id: str, number: int) -> dict[int, bool]:
    """Return the processes of a container that have a handler of their own for a signal.

    Args:
        container_id: which.
        number: of the signal.

    Returns:
        Pid in the container → whether it is the first one there, or what its init process runs.
    """
    found: dict[int, bool] = {}
    members = _members(control_groups(container_id))
    inner = {pid: _inner_pid(pid) for pid in members}
    for pid in members:
        fields = _status(pid)
        caught = int(fields.get("SigCgt") or "0", 16)
        if caught >> (number - 1) & 1 and inner[pid] > 0:
            parent = int(fields.get("PPid") or 0)
            found[inner[pid]] = inner[pid] == 1 or inner.get(parent) == 1
    return found


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


def _is_stopped(pid: int) -> bool:
    state = _text(f"/proc/{pid}/stat").rpartition(") ")[2]
    return state[:1] in ("T", "t")


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
