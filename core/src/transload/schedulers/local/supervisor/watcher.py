"""The watcher of one app whose spawner is gone: it waits for the keeper's end, and does what the spawner would do then.

It is started only in that case, by the keeper, and ends with the app.
"""

from __future__ import annotations

import os
import signal

from . import finalise, helpers, kernel, layout


def start(home: str, app_id: str) -> tuple[int, int]:
    """Fork a watcher; return its pid, and the descriptor whose closing tells it that this process is dead."""
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
    helpers.enter(home, b"tl-watcher")
    os.read(3, 1)
    folder = layout.app_folder(home, app_id)
    state = layout.read_json(f"{folder}/state.json")
    if state is not None and state.get("state") not in layout.TERMINAL:
        finalise.finalise(home, app_id, wait=True)
    helpers.leave(home)
