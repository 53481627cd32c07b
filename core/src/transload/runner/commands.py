"""Run a command line that reaches a replica (`transload.schedulers.ExecCommand`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from transload.errors import SpecError

if TYPE_CHECKING:
    from transload.schedulers.api import ExecCommand

__all__ = ["run_command"]


def run_command(command: ExecCommand, *, capture: bool) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end.

    Args:
        command: the command line.
        capture: return its output, and give it no input. Otherwise it has this process's streams.

    Raises:
        SpecError: if its program cannot be run here.
    """
    source = subprocess.DEVNULL if capture else None
    target = subprocess.PIPE if capture else None
    try:
        process = subprocess.Popen(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            stdin=source,
            stdout=target,
            stderr=target,
        )
    except OSError as exc:
        raise SpecError(f"{command.argv[0]!r}: cannot be run: {exc.strerror}") from exc
    with _interrupts_go_to(process):
        try:
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command.argv, process.returncode, out, err)


@contextlib.contextmanager
def _interrupts_go_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave Ctrl-C to a command, whose end would be lost if it interrupted the wait for it."""

    def pass_on(number: int, _: object) -> None:
        if not os.isatty(0):  # else the terminal has interrupted it as well
            process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
