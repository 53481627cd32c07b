"""Note which job has which GPU of this machine, in one table for all jobs of the user.

GPUs are given in the order of the requests. A job of processes is in the table only as long as its
keeper lives, so that a killed keeper frees what it had. Jobs of an engine, such as Docker's, go on
without their keepers, so they are there until they have ended.

A job's key in the table is a folder, whose last part is its id.
"""

from __future__ import annotations

import os

from . import layout, processes

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from typing import IO, Any

__all__ = ["Table", "release"]


_PATIENCE_S = 1.0

KFD = "/sys/class/kfd/kfd"
"""The folder in which AMD's driver lists its GPUs."""


class Table:
    """The table, which its owner may change as long as it holds the lock.

    Args:
        folder: the folder of the table.
        patience: seconds to wait for the lock.

    Attributes:
        kept: GPUs of each job that ends with its keeper.
        engines: GPUs of each job that an engine runs.
        waiting: the jobs that wait, in order. They end with their keepers.

    Raises:
        TimeoutError: if somebody else holds the lock for longer.
    """

    def __init__(self, folder: str, patience: float = _PATIENCE_S) -> None:
        self._path = f"{folder}/gpus.json"
        layout.make_folders(folder)
        self._lock: IO[bytes] = layout.locked(f"{folder}/gpus.lock", patience)
        found: Any = layout.read_json(self._path) or {}
        self.kept = _lists(found.get("kept"))
        self.engines = _lists(found.get("engines"))
        self.waiting: list[str] = [str(job) for job in found.get("waiting") or ()]

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.close()

    def forget_dead(self, own: str = "") -> None:
        """Take out the jobs that have ended. One's own may not be there yet."""
        self.kept = {
            job: ids for job, ids in self.kept.items() if job == own or layout.is_kept(job)
        }
        self.waiting = [job for job in self.waiting if job == own or layout.is_kept(job)]
        self.engines = {job: ids for job, ids in self.engines.items() if not _has_ended(job)}

    def holders(self, but: str = "") -> dict[str, str]:
        """Return the job that has a GPU, by the GPU. The GPUs of one job can be left out."""
        every = {**self.engines, **self.kept}
        return {gpu: job for job, ids in every.items() if job != but for gpu in ids}

    def write(self) -> None:
        """Write the table."""
        table = {"kept": self.kept, "engines": self.engines, "waiting": self.waiting}
        layout.write_file(self._path, layout.dumps({"schema": 1, **table}))

    def wake(self) -> None:
        """Have the job that waits first look again."""
        for job in self.waiting[:1]:
            home = os.path.dirname(os.path.dirname(job))
            processes.notify(home, os.path.basename(job), processes.LOOK)


def _has_ended(job: str) -> bool:
    """Tell whether a job has ended, by what its keeper wrote last, or is gone."""
    state = layout.read_json(layout.state_file(job))
    if state is None:
        return not os.path.isdir(job)
    return state.get("state") in layout.TERMINAL or layout.noted_end(job) is not None


def _lists(value: Any) -> dict[str, list[str]]:
    return {str(job): [str(gpu) for gpu in ids] for job, ids in (value or {}).items()}


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


def acquire(folder: str, job: str, wanted: int, machine: list[str], path: str) -> Grant:
    """Give a job ``wanted`` of the machine's GPUs, or a place in the queue.

    Those on which some other process computes are not free. ``path`` is the PATH on which the
    vendor's tool is.
    """
    used = in_use(path)
    try:
        table = Table(folder)
    except TimeoutError:  # a job may hold the lock, and must not keep others waiting
        return Grant(None, f"{folder}/gpus.lock is held by another process")
    with table:
        table.forget_dead(job)
        taken = {*table.holders(but=job), *used}
        free = [gpu for gpu in machine if gpu not in taken]
        if table.waiting[:1] not in ([], [job]) or len(free) < wanted:
            if job not in table.waiting:
                table.waiting.append(job)
            table.write()
            return Grant(None, _holders(table, machine, used, table.waiting.index(job)))
        table.kept[job] = free[:wanted]
        if job in table.waiting:
            table.waiting.remove(job)
        table.write()
    table.wake()  # what is still free may be enough for the next one
    return Grant(table.kept[job])


def _holders(table: Table, machine: list[str], used: set[str], before: int) -> str:
    """Return the holders of the machine's GPUs, and how many jobs wait before this one, as text."""
    parts = []
    taken: set[str] = set()
    for job, ids in [*table.kept.items(), *table.engines.items()]:
        mine = [gpu for gpu in ids if gpu in machine]
        taken.update(mine)
        if mine:
            parts.append(f"{os.path.basename(job)} has {', '.join(mine)}")
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


def release(folder: str, job: str) -> None:
    """Take a job out of the table and the queue, and wake the one that waits first.

    Raises:
        OSError: if that cannot be done. What a job holds is free anyway once its keeper is
            gone.
    """
    with Table(folder) as table:
        table.forget_dead()
        table.kept.pop(job, None)
        table.engines.pop(job, None)
        if job in table.waiting:
            table.waiting.remove(job)
        table.write()
    table.wake()
