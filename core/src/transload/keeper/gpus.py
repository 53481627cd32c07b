"""Note which job has which GPU, in one table for all local jobs of the user.

GPUs are given in the order of the requests. Each job in the table is there only as long as its
keeper lives, so that a killed keeper frees what it had.
"""

from __future__ import annotations

import os

from . import layout, processes

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from typing import Any


_PATIENCE_S = 1.0

KFD = "/sys/class/kfd/kfd"
"""The folder in which AMD's driver lists its GPUs."""


def _read(home: str, own: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the GPUs of each job, and the jobs that wait, in order.

    A job whose keeper is gone is left out.
    """
    table: Any = layout.read_json(f"{home}/gpus.json") or {}
    apps = {*(table.get("held") or ()), *(table.get("waiting") or ())}
    there = {app for app in apps if app == own or layout.is_kept(layout.app_folder(home, app))}
    held = {app: list(ids) for app, ids in (table.get("held") or {}).items() if app in there}
    return held, [app for app in table.get("waiting") or () if app in there]


def _write(home: str, held: dict[str, list[str]], waiting: list[str]) -> None:
    layout.write_file(
        f"{home}/gpus.json", layout.dumps({"schema": 1, "held": held, "waiting": waiting})
    )


class Grant:
    """The result of asking for GPUs.

    Args:
        ids: the GPUs that the job has now. None means that too few are free, and the job is in the
            queue.
        why: which jobs hold them, and how many wait before this one.
    """

    def __init__(self, ids: list[str] | None, why: str = "") -> None:
        self.ids = ids
        self.why = why


def acquire(home: str, app_id: str, wanted: int, machine: list[str], path: str) -> Grant:
    """Give a job ``wanted`` of the machine's GPUs, or a place in the queue.

    Those on which some other process computes are not free. ``path`` is the PATH on which the
    vendor's tool is.
    """
    used = in_use(path)
    try:
        table = layout.locked(f"{home}/gpus.lock", _PATIENCE_S)
    except TimeoutError:  # a job may hold the lock, and must not keep others waiting
        return Grant(None, f"{home}/gpus.lock is held by another process")
    with table:
        held, waiting = _read(home, app_id)
        taken = {gpu for app, ids in held.items() if app != app_id for gpu in ids} | used
        free = [gpu for gpu in machine if gpu not in taken]
        if waiting[:1] not in ([], [app_id]) or len(free) < wanted:
            if app_id not in waiting:
                waiting.append(app_id)
            _write(home, held, waiting)
            before = waiting.index(app_id)
            return Grant(None, _holders(held, machine, used, before))
        held[app_id] = free[:wanted]
        if app_id in waiting:
            waiting.remove(app_id)
        _write(home, held, waiting)
    _wake(home, waiting)  # what is still free may be enough for the next one
    return Grant(held[app_id])


def _holders(held: dict[str, list[str]], machine: list[str], used: set[str], before: int) -> str:
    """Return the holders of the machine's GPUs, and how many jobs wait before this one, as text."""
    parts = []
    taken: set[str] = set()
    for app, ids in held.items():
        mine = [gpu for gpu in ids if gpu in machine]
        taken.update(mine)
        if mine:
            parts.append(f"{app} has {', '.join(mine)}")
    foreign = [gpu for gpu in machine if gpu in used and gpu not in taken]
    if foreign:
        parts.append(f"a process outside of transload computes on {', '.join(foreign)}")
    if before == 1:
        parts.append("1 job waits before it")
    elif before:
        parts.append(f"{before} jobs wait before it")
    return "; ".join(parts)


def in_use(path: str, kfd: str = KFD) -> set[str]:
    """Return the GPUs that processes compute on, by number and UUID.

    `nvidia-smi` or AMD's driver says so. Without either, or if the tool fails, there are none.
    """
    return _nvidia_in_use(path) | _amd_in_use(kfd)


def _nvidia_in_use(path: str) -> set[str]:
    if not any(os.access(f"{folder}/nvidia-smi", os.X_OK) for folder in path.split(os.pathsep)):
        return set()
    import subprocess

    def ask(what: str) -> list[list[str]]:
        command = ["nvidia-smi", f"--query-{what}", "--format=csv,noheader"]
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=5, env={**os.environ, "PATH": path}
        )
        return [[word.strip() for word in line.split(",")] for line in said.stdout.splitlines()]

    try:
        busy = {row[0] for row in ask("compute-apps=gpu_uuid,pid") if len(row) == 2}
        return {
            word for row in (ask("gpu=index,uuid") if busy else ()) if busy & {*row} for word in row
        }
    except (OSError, subprocess.SubprocessError):
        return set()


def _amd_in_use(kfd: str) -> set[str]:
    """Return the numbers of AMD's GPUs whose memory a process uses.

    The kernel's `kfd` in sysfs names them.
    """
    used = set()
    for number, gpu in enumerate(amd_gpus(kfd)):
        for pid in os.listdir(f"{kfd}/proc") if os.path.isdir(f"{kfd}/proc") else ():
            used |= (
                {str(number)}
                if _content(f"{kfd}/proc/{pid}/vram_{gpu}") not in ("", "0")
                else set()
            )
    return used


def amd_gpus(kfd: str = KFD) -> list[str]:
    """Return the driver's ids of AMD's GPUs, in the order of their numbers."""
    found = []
    nodes = f"{kfd}/topology/nodes"
    for node in sorted(os.listdir(nodes), key=int) if os.path.isdir(nodes) else ():
        found.append(_content(f"{nodes}/{node}/gpu_id"))
    return [each for each in found if each not in ("", "0")]


def _content(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def release(home: str, app_id: str) -> None:
    """Take a job out of the table and the queue, and wake the one that waits first.

    Raises:
        OSError: if that cannot be done. What a job holds is free anyway once its keeper is
            gone.
    """
    if not os.path.exists(f"{home}/gpus.json"):
        return
    with layout.locked(f"{home}/gpus.lock", _PATIENCE_S):
        held, waiting = _read(home, app_id)
        held.pop(app_id, None)
        if app_id in waiting:
            waiting.remove(app_id)
        _write(home, held, waiting)
    _wake(home, waiting)


def _wake(home: str, waiting: list[str]) -> None:
    for app_id in waiting[:1]:
        processes.notify(home, app_id, processes.LOOK)
