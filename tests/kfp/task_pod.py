"""Run a command as the main container of a task's pod runs it.

What a real backend (2.17) does there: process 1 starts KFP's ``launch`` as the leader of a group,
and ``launch`` starts the command, whose stdout and stderr it copies. ``launch`` has no handler for
SIGTERM, so the command's pipes break as soon as the pod is ended. Process 1 looks once a second
whether ``launch`` has ended. Then it ends itself, and the kernel kills what is left.

As a program, ``task_pod.py FILE COMMAND …`` is process 1. It writes the group into the file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LOOKS_EACH_S = 1.0
_DIES_WITH_PARENT, _IS_SUBREAPER = 1, 36


class TaskPod:
    """A pod whose main container runs a command."""

    def __init__(
        self, folder: Path, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        folder.mkdir()
        self._group = folder / "group"
        program = [sys.executable, __file__, str(self._group), *command]
        self._said = folder / "log"
        with open(self._said, "wb") as log:
            self.process = subprocess.Popen(
                program, stdout=log, stderr=subprocess.STDOUT, env=dict(environment)
            )

    @property
    def said(self) -> str:
        """Return what the container has written."""
        return self._said.read_text(errors="replace")

    def has_begun(self) -> bool:
        """Tell whether the container has been started."""
        return self._group.exists()

    def terminate(self) -> int:
        """End the pod as a drain, an eviction or a deletion does, and return its exit code."""
        self.process.terminate()
        return self.process.wait(60)

    def kill(self) -> None:
        """End all processes at once, as the loss of a node does."""
        if self.process.poll() is not None:
            return
        self.process.kill()
        self.process.wait(60)
        with suppress(OSError, ValueError):  # it had not begun yet
            os.killpg(int(self._group.read_text()), signal.SIGKILL)


def main(words: list[str]) -> None:
    """Be process 1."""
    _control(_IS_SUBREAPER, 1)
    group = os.fork()
    if group == 0:
        os.setpgid(0, 0)
        os._exit(_launch(words[1:]))
    os.setpgid(group, group)
    signal.signal(signal.SIGTERM, lambda number, frame: os.killpg(group, number))
    Path(words[0]).write_text(str(group))
    status: int | None = None
    while status is None:
        time.sleep(LOOKS_EACH_S)
        ended, found = os.waitpid(group, os.WNOHANG)
        if ended == group:
            status = os.waitstatus_to_exitcode(found)
    try:
        os.killpg(group, signal.SIGKILL)
        while True:
            os.wait()  # what was left, which is this process's now
    except (ProcessLookupError, ChildProcessError):
        pass
    os._exit(status if status >= 0 else 128 - status)


def _launch(command: list[str]) -> int:
    """Be KFP's ``launch``."""
    _control(_DIES_WITH_PARENT, signal.SIGKILL)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    threads = [
        threading.Thread(target=_copy, args=streams)
        for streams in ((child.stdout, 1), (child.stderr, 2))
    ]
    for thread in threads:
        thread.start()
    code = child.wait()
    for thread in threads:
        thread.join()
    return 1 if code else 0  # whatever it was


def _copy(source: Any, target: int) -> None:
    while data := os.read(source.fileno(), 1 << 16):
        os.write(target, data)


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value)


if __name__ == "__main__":
    main(sys.argv[1:])
