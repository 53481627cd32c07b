"""Guard a job by a process beside its supervisor, which ends the job if that is killed.

The fork server forks the guard, and the guard forks the supervisor. So whatever a dead supervisor
leaves behind becomes the guard's to kill. A guard that is killed is replaced by the supervisor with
one that is its child. Where both are killed together, the next client that looks does the same.
"""

from __future__ import annotations

import os
import sys

from . import creation, gpus, kernel, layout, processes, protocol
from .kernel import signal
from .protocol import socket

TYPE_CHECKING = False  # typing itself would cost the fork server its speed
if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE_S = 10.0


def finalise(home: str, app_id: str, wait: bool = False) -> bool:
    """End what is left of a job whose supervisor is dead, and write that it FAILED.

    With ``wait`` its supervisor is dying. The kernel may free its lock after its other files.

    Returns:
        True if the job has an end now, False if it has a supervisor, or another process ends it.
    """
    folder = layout.app_folder(home, app_id)
    lock = layout.take_lock(f"{folder}/record.json", wait=wait)
    if lock is None:
        return False
    try:
        state = layout.read_json(layout.state_file(folder)) or {}
        if state.get("state") in layout.TERMINAL or layout.noted_end(folder):
            return True
        record = layout.read_json(f"{folder}/record.json")
        rebooted = record is not None and record.get("boot_id") != kernel.boot_id()
        if record is None:
            reason = "its record is damaged: the machine went down while it was written"
        elif rebooted:
            reason = "the machine was rebooted while the job ran"
        else:
            roots = [(int(pid), int(started)) for pid, started in state.get("processes") or ()]
            cookie = str(record.get("cookie") or "")
            stuck = processes.cannot_end(
                processes.kill(lambda: processes.survivors(cookie, roots), _PATIENCE_S)
            )
            reason = f"its supervisor died; {stuck or 'all processes of the job were ended'}"
        _write_failed(folder, state, reason)
    finally:
        os.close(lock)
    gpus.release(home, app_id)
    layout.announce(home, app_id)
    return True


def _write_failed(folder: str, state: dict[str, object], reason: str) -> None:
    ended = layout.now()
    layout.end_replicas(state, "FAILED", ended)
    before = state.get("msg")
    state.update(
        schema=layout.SCHEMA,
        state="FAILED",
        msg=f"{reason} (before that: {before})" if before else reason,
        cancel_requested=layout.is_end_asked(folder),
        ended=ended,
        processes=[],
    )
    layout.write_file(layout.state_file(folder), layout.dumps(state) + b"\n")


def run(
    home: str,
    client: socket.socket,
    supervise: Callable[[str, socket.socket, socket.socket], None],
) -> None:
    """Fork a supervisor that answers this client, and guard it until it has ended.

    ``supervise(home, client, link)`` is what the supervisor does. It sends its job's id through
    ``link``, and sees the end of that when its guard is gone.
    """
    kernel.become_subreaper()
    link, other_end = socket.socketpair()
    try:
        pid = os.fork()
    except OSError as exc:
        protocol.refuse(client, f"cannot start a supervisor: {exc.strerror}")
        return
    if pid == 0:
        code = 70
        try:
            link.close()
            supervise(home, client, other_end)
            code = 0
        except BaseException:  # whatever it was, the guard's code must not run here
            sys.stderr.write(kernel.exception_text())
        finally:
            sys.stderr.flush()
            os._exit(code)
    client.close()
    other_end.close()
    _become_guard(home)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        app_id = os.fsdecode(link.recv(protocol.SMALL))
        processes.kill(_left_to_this_process, _PATIENCE_S)
        creation.remove_unfinished(home, pid)
        processes.forget_dead(home)
        if app_id:
            finalise(home, app_id, wait=True)
    processes.leave(home)


def _left_to_this_process() -> tuple[processes.Snapshot, set[int]]:
    living = processes.snapshot()
    return living, processes.below(living, {os.getpid()})


def replace(home: str, app_id: str) -> tuple[int, int]:
    """Fork a guard in the place of one that is gone.

    Returns:
        Its pid, and the descriptor whose closing shows it that this process is dead.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(reader, 3)
            kernel.close_from(4)
            _become_guard(home)
            os.read(3, 1)
            state = layout.read_json(layout.state_file(layout.app_folder(home, app_id)))
            if state is not None and state.get("state") not in layout.TERMINAL:
                finalise(home, app_id, wait=True)
            processes.leave(home)
        finally:
            os._exit(0)
    os.close(reader)
    return pid, writer


def _become_guard(home: str) -> None:
    """Be a process of ours in a session of its own. SIGTERM is the supervisor's to answer."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    try:
        processes.enter(home, b"tl-watcher")
    except OSError:
        pass  # the state folder was moved, which does not keep the job from being guarded
