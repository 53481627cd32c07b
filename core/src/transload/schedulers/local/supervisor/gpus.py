"""Which app has which GPU: one table for all local apps of the user, first come, first served.

Each app in the table is there only as long as its keeper lives, so that a killed keeper frees what it had.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress

from . import layout

TYPE_CHECKING = False  # typing itself would cost the spawner its speed
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


KFD = "/sys/class/kfd/kfd"
"""Where AMD's driver tells of its GPUs."""


@contextmanager
def _table(home: str, own: str) -> Iterator[tuple[dict[str, list[str]], list[str]]]:
    """Give the table to be changed: app → its GPUs, and the apps that wait, in order; none whose keeper is gone."""
    with layout.locked(f"{home}/gpus.lock"):
        table: Any = layout.read_json(f"{home}/gpus.json") or {}
        apps = {*(table.get("held") or ()), *(table.get("waiting") or ())}
        there = {app for app in apps if app == own or layout.keeper_lives(layout.app_folder(home, app))}
        held = {app: list(ids) for app, ids in (table.get("held") or {}).items() if app in there}
        waiting = [app for app in table.get("waiting") or () if app in there]
        yield held, waiting
        layout.write_file(f"{home}/gpus.json", json.dumps({"schema": 1, "held": held, "waiting": waiting}).encode())


def acquire(home: str, app_id: str, wanted: int, machine: list[str], path: str) -> list[str] | None:
    """Give an app ``wanted`` of the machine's GPUs; None: too few are free, the app stands in the queue now.

    Those on which some other process computes are not free; ``path`` is the PATH on which the vendor's tool is.
    """
    used = in_use(path)
    with _table(home, app_id) as (held, waiting):
        taken = {gpu for app, ids in held.items() if app != app_id for gpu in ids} | used
        free = [gpu for gpu in machine if gpu not in taken]
        if waiting[:1] not in ([], [app_id]) or len(free) < wanted:
            if app_id not in waiting:
                waiting.append(app_id)
            return None
        held[app_id] = free[:wanted]
        if app_id in waiting:
            waiting.remove(app_id)
    _wake(home, waiting)  # what is still free may be enough for the next one
    return held[app_id]


def in_use(path: str, kfd: str = KFD) -> set[str]:
    """Return the GPUs that processes compute on, by number and UUID, as `nvidia-smi` or AMD's driver tell.

    A machine that has neither, or whose tool fails, tells nothing.
    """
    return _nvidia_in_use(path) | _amd_in_use(kfd)


def _nvidia_in_use(path: str) -> set[str]:
    if not any(os.access(f"{folder}/nvidia-smi", os.X_OK) for folder in path.split(os.pathsep)):
        return set()
    import subprocess

    def ask(what: str) -> list[list[str]]:
        command = ["nvidia-smi", f"--query-{what}", "--format=csv,noheader"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=5, env={**os.environ, "PATH": path})
        return [[word.strip() for word in line.split(",")] for line in said.stdout.splitlines()]

    try:
        busy = {row[0] for row in ask("compute-apps=gpu_uuid,pid") if len(row) == 2}
        return {word for row in (ask("gpu=index,uuid") if busy else ()) if busy & {*row} for word in row}
    except (OSError, subprocess.SubprocessError):
        return set()


def _amd_in_use(kfd: str) -> set[str]:
    """Return the numbers of AMD's GPUs in whose memory a process has something, by the kernel's `kfd` in sysfs."""
    used = set()
    for number, gpu in enumerate(amd_gpus(kfd)):
        for pid in os.listdir(f"{kfd}/proc") if os.path.isdir(f"{kfd}/proc") else ():
            with suppress(OSError, ValueError), open(f"{kfd}/proc/{pid}/vram_{gpu}") as file:
                used |= {str(number)} if int(file.read()) else set()
    return used


def amd_gpus(kfd: str = KFD) -> list[str]:
    """Return the driver's ids of AMD's GPUs, in the order of their numbers."""
    found = []
    nodes = f"{kfd}/topology/nodes"
    for node in sorted(os.listdir(nodes), key=int) if os.path.isdir(nodes) else ():
        with suppress(OSError), open(f"{nodes}/{node}/gpu_id") as file:
            found.append(file.read().strip())
    return [each for each in found if each not in ("", "0")]


def release(home: str, app_id: str) -> None:
    """Take an app out of the table and the queue, and wake the one that waits first."""
    if not os.path.exists(f"{home}/gpus.json"):
        return
    with _table(home, app_id) as (held, waiting):
        held.pop(app_id, None)
        if app_id in waiting:
            waiting.remove(app_id)
    _wake(home, waiting)


def _wake(home: str, waiting: list[str]) -> None:
    for app_id in waiting[:1]:
        layout.poke(layout.app_folder(home, app_id))
