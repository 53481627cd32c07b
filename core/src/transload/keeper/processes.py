"""Find the living processes of a job, and signal them.

A process of another job or program is never signalled.

A pid means nothing without the start time of its process, since the kernel gives it again later. A
zombie does not count as living.

A job may submit jobs. Their keepers descend from its own, and are known by their environment.
"""

from __future__ import annotations

import os
import time

from . import layout
from .kernel import LINUX, signal

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # pid -> (parent's pid, start time, in the kernel's own unit)
    Snapshot = dict[int, tuple[int, int]]

__all__ = [
    "CANCEL",
    "LOOK",
    "MARK",
    "below",
    "keeper_lives",
    "passing_on",
    "send",
    "snapshot",
    "start_time",
]

COOKIE = "TRANSLOAD_APP_COOKIE"
LOOK, CANCEL = signal.SIGUSR1, signal.SIGUSR2
"""Signals that make a keeper look at requests, or end its job."""


def stat_of(pid: int) -> tuple[int, int] | None:
    """Return the parent's pid and the start time of a living process.

    Returns:
        The two numbers, or None if there is no such process or it is a zombie.
    """
    if not LINUX:
        return _ps().get(pid)
    data = layout.part_of(f"/proc/{pid}/stat", 1024)
    # the command's name, in brackets, may hold anything, but what follows the last bracket is plain
    fields = data[data.rfind(b")") + 2 :].split(None, 20)
    if len(fields) < 20:
        return None
    # of a program whose first thread has ended before the others only that one is a zombie
    if fields[0] in (b"Z", b"X", b"x") and int(fields[17]) <= 1:
        return None
    return int(fields[1]), int(fields[19])


def start_time(pid: int) -> int:
    """Return the start time of a process, 0 if it does not live."""
    found = stat_of(pid)
    return found[1] if found else 0


def snapshot() -> Snapshot:
    """Return all living processes."""
    if not LINUX:
        return _ps()
    found: Snapshot = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = stat_of(int(name))
            if stat is not None:
                found[int(name)] = stat
    return found


def _ps() -> Snapshot:
    """Ask ps, on a system without /proc. It gives start times in whole seconds only."""
    found: Snapshot = {}
    with os.popen("/bin/ps -axo pid=,ppid=,stat=,lstart=") as lines:  # noqa: S605 - a constant
        for line in lines:
            fields = line.split(None, 3)
            if len(fields) == 4 and not fields[2].startswith("Z"):
                started = int(time.mktime(time.strptime(fields[3].strip(), "%a %b %d %H:%M:%S %Y")))
                found[int(fields[0])] = (int(fields[1]), started)
    return found


NAME = b"tl-keeper"
MARK = "TRANSLOAD_KEEPER"
"""The variable by which a keeper is known. No job gets it."""


def is_keeper(pid: int) -> bool:
    """Tell whether a process is a keeper, of any state folder."""
    if layout.part_of(f"/proc/{pid}/comm", 32) != NAME + b"\n":
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return MARK.encode() + b"=" in file.read()
    except PermissionError:
        return True  # another user's process cannot be ended, and must not be waited for
    except OSError:
        return False


def trees(processes: Snapshot, roots: dict[int, Any]) -> dict[int, Any]:
    """Return ``roots`` and all their descendants, each with the value of its root.

    Keepers and what descends from them are left out. So a job that a job has submitted is
    not that job's, whoever is its keeper's parent.
    """
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    found = dict(roots)
    queue = list(roots)
    while queue:
        parent = queue.pop()
        for pid in children.get(parent, ()):
            if pid not in found and not is_keeper(pid):
                found[pid] = found[parent]
                queue.append(pid)
    return found


def below(processes: Snapshot, roots: set[int]) -> set[int]:
    """Return all descendants of ``roots``, the roots left out, as `trees` finds them."""
    return set(trees(processes, dict.fromkeys(roots))) - roots


def cookie_of(pid: int) -> str | None:
    """Return the cookie that a process was started with (``app:role:replica``).

    Returns:
        The cookie, or None if it has none or hides it.
    """
    try:
        return variables_of(pid).get(COOKIE)
    except OSError:
        return None


def variables_of(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with, as far as it has not overwritten them.

    Raises:
        OSError: if it is gone, another user's, or the system does not tell.
    """
    with open(f"/proc/{pid}/environ", "rb") as file:
        lines = file.read().decode("utf-8", "surrogateescape").split("\0")
    pairs = (line.partition("=") for line in lines)
    return {name: value for name, mark, value in pairs if name and mark}


def program_of(pid: int) -> int:
    """Return the program that a replica's main process runs, which may be uv's child."""
    if not _is_uv(pid):
        return pid
    children = [each for each, (parent, _) in snapshot().items() if parent == pid]
    return children[0] if len(children) == 1 else pid


def send(pid: int, started: int, number: int) -> bool:
    """Signal the process of that pid *and* start time.

    Returns:
        False if it is gone, whoever has the pid now.
    """
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError) as exc:
        if isinstance(exc, ProcessLookupError):
            return False
        return _send_by_pid(pid, started, number)
    try:
        # the descriptor keeps the pid from being given again after this look
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _send_by_pid(pid: int, started: int, number: int) -> bool:
    """Signal where the system has no pidfd, after looking at the start time as late as can be."""
    if start_time(pid) != started:
        return False
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def keeper_of(home: str, app_id: str) -> tuple[int, int]:
    """Return the pid and start time of the keeper of a job, as it wrote them, or zeros."""
    state = layout.read_json(layout.state_file(layout.app_folder(home, app_id))) or {}
    try:
        pid, started = map(int, state.get("keeper") or (0, 0))
    except (TypeError, ValueError):  # a job wrote that
        return 0, 0
    return pid, started


def keeper_lives(home: str, app_id: str) -> bool:
    """Tell whether the keeper of a job lives, as far as can be seen without its lock."""
    pid, started = keeper_of(home, app_id)
    return pid > 0 and start_time(pid) == started and is_keeper(pid)


def open_keeper(home: str, app_id: str) -> int:
    """Return a pidfd of the keeper of a job, readable once it has ended, or -1."""
    pid, started = keeper_of(home, app_id)
    if not pid:
        return -1
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
    if start_time(pid) == started:
        return fd
    os.close(fd)
    return -1


def notify(home: str, app_id: str, number: int) -> bool:
    """Make the keeper of a job check requests (LOOK), or end the job (CANCEL).

    Returns:
        False if the job has no keeper, as far as can be seen.
    """
    pid, started = keeper_of(home, app_id)
    return pid > 0 and send(pid, started, number)


def signal_all(processes: Snapshot, pids: set[int], number: int) -> None:
    """Signal many processes. A stopped one is continued so that it can act on a request to end."""
    for pid in pids:
        if send(pid, processes[pid][1], number) and number != signal.SIGKILL:
            send(pid, processes[pid][1], signal.SIGCONT)


def passing_on(processes: Snapshot, pids: set[int]) -> set[int]:
    """Return those that are uv and have a program.

    uv passes a signal on, and the program, which gets it as well, would have it twice.
    """
    parents = {processes[pid][0] for pid in pids}
    return {pid for pid in pids & parents if _is_uv(pid)}


def _is_uv(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("uv")
    except OSError:
        return False


def kill(
    members: Callable[[], tuple[Snapshot, set[int]]], patience: float = float("inf")
) -> set[int]:
    """Kill what ``members`` finds, and return what is left after ``patience`` seconds."""
    deadline, pause = time.monotonic() + patience, 0.001
    while True:
        processes, left = members()
        if not left or time.monotonic() >= deadline:
            return left
        signal_all(processes, left, signal.SIGKILL)
        time.sleep(pause)  # only a parent is notified of the end
        pause = min(pause * 2, 1.0)


def cannot_end(pids: set[int]) -> str:
    """Return what a status says of processes that do not die, or ``""`` for none."""
    named = []
    for pid in sorted(pids)[:5]:
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                named.append(f"{pid} ({file.read().strip()})")
        except OSError:
            named.append(str(pid))
    more = f" and {len(pids) - 5} more" if len(pids) > 5 else ""
    return f"cannot end the process {', '.join(named)}{more}" if named else ""


def survivors(cookie: str, roots: list[tuple[int, int]]) -> tuple[Snapshot, set[int]]:
    """Return the processes that still run of a job whose keeper is gone.

    They have the job's cookie, or descend from a living process of ``roots`` (pid, start time).
    """
    processes = snapshot()
    living = {pid for pid, started in roots if pid in processes and processes[pid][1] == started}
    found = living | below(processes, living)
    for pid in processes:
        if pid not in found and cookie and (cookie_of(pid) or "").split(":", 1)[0] == cookie:
            found.add(pid)
    found.discard(os.getpid())
    return processes, found
