"""What is done for an app whose supervisor is gone without having written an end, by whoever
notices first.

Mostly that is the fork server. Once that is gone, the supervisor starts a watcher, which waits for
the supervisor's end, and then does what the fork server would have done.
"""

from __future__ import annotations

import os

from . import gpus, kernel, layout, tree
from .kernel import signal

_PATIENCE_S = 10.0


def finalise(home: str, app_id: str, wait: bool = False) -> bool:
    """End what is left of the app and write that it FAILED, if nobody keeps it and it has no end
    yet.

    With ``wait`` its supervisor is known to be dying: the kernel may let go of its lock after its
    other files.

    Returns:
        True if the app has an end now; False if it has a supervisor, or somebody else is at it.
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
            reason = "the machine was rebooted while the app ran"
        else:
            roots = [(int(pid), int(started)) for pid, started in state.get("processes") or ()]
            cookie = str(record.get("cookie") or "")
            stuck = tree.cannot_end(tree.kill(lambda: tree.survivors(cookie, roots), _PATIENCE_S))
            reason = f"its supervisor died; {stuck or 'all processes of the app were ended'}"
        _write_failed(folder, state, reason)
    finally:
        os.close(lock)
    gpus.release(home, app_id)
    layout.announce(home, app_id)
    return True


def _write_failed(folder: str, state: dict[str, object], reason: str) -> None:
    ended = layout.now()
    for role in state.get("roles") or ():  # type: ignore[attr-defined]
        for replica in role.get("replicas", ()):
            if replica.get("state") not in layout.TERMINAL:
                replica.update(state="FAILED", end_time=ended)
            if replica.get("end_time") is None:
                replica["end_time"] = ended
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


def start_watcher(home: str, app_id: str) -> tuple[int, int]:
    """Fork a watcher; return its pid, and the descriptor whose closing tells it that this process
    is dead.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _watch(home, app_id, reader)
        finally:
            os._exit(0)
    os.close(reader)
    return pid, writer


def _watch(home: str, app_id: str, reader: int) -> None:
    signal.set_wakeup_fd(-1)
    os.setsid()
    os.dup2(reader, 3)
    kernel.close_from(4)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    tree.enter(home, b"tl-watcher")
    os.read(3, 1)
    folder = layout.app_folder(home, app_id)
    state = layout.read_json(layout.state_file(folder))
    if state is not None and state.get("state") not in layout.TERMINAL:
        finalise(home, app_id, wait=True)
    tree.leave(home)
