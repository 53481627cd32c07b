"""Run a command line that reaches a replica (`transload.schedulers.ExecCommand`)."""

from __future__ import annotations

import os
import signal
import subprocess
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
    out, err = _end_of(process)
    return subprocess.CompletedProcess(command.argv, process.returncode, out, err)


def _end_of(process: subprocess.Popen[bytes]) -> tuple[bytes | None, bytes | None]:
    """Wait for the end of a command and return its output. Ctrl-C is the command's alone."""
    while True:
        try:
            return process.communicate()
        except KeyboardInterrupt:
            if not os.isatty(0):  # else the terminal has interrupted it as well
                process.send_signal(signal.SIGINT)
        except BaseException:
            process.kill()
            raise
