"""Environments that a short job makes, on a node."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pkgutil
import subprocess
import threading
from collections.abc import Generator, Mapping
from typing import Any, Final

from transload.schedulers.environments.program import Say, find, key_of
from transload.schedulers.local.home import make_private
from transload_slurm import commands
from transload_slurm.store import write_file

_SHAPE: Final = ("--ntasks=1", "--cpus-per-task=1", "--mem=2G", "--time=30")
_NAME: Final = "--job-name=transload-environment"
_KEPT_LINES: Final = 12
_SOON_S: Final = 2.0
_END_S: Final = 20.0


class MakingJob:
    """A short job that makes an environment. It ends when its ``srun`` does.

    Args:
        options: those of its ``srun``.
    """

    def __init__(self, options: list[str]) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def make(self, order: dict[str, Any], say: Say) -> dict[str, Any]:
        """Run the job to its end. Return the last message of the program that makes environments.

        Args:
            order: what to make, as of `transload.schedulers.environments.order_to_make`.
            say: takes what the installer and Slurm say meanwhile.
        """
        last: dict[str, Any] = {}
        with contextlib.closing(self.lines({**order, "watch": True})) as lines:
            for data in lines:
                last = json.loads(data)
                if "line" in last:
                    say(str(last["line"]))
        return last

    def lines(self, order: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """Run the job, and yield what the program that makes environments writes.

        What Slurm says is among it.

        Nothing runs if the environment is there.

        Args:
            order: what to make, as of `transload.schedulers.environments.order_to_make`.
        """
        root = order["root"]
        python = order["python"] or order["place"]
        found = find(root, key_of(order["recipe"], python, order["packed"]))
        if found is not None:
            yield _line({"made": False, "path": found, "key": os.path.basename(found)})
            return
        process = self._start(["srun", *_SHAPE, _NAME, *self._options, python, "-I", _place(root)])
        if process is None:
            yield _line({"error": "it was interrupted", "lines": [], "transient": True})
            return
        said: list[str] = []
        is_over = False
        try:
            self._give(process, order)
            assert process.stdout is not None
            for data in process.stdout:
                if data.startswith(b"{"):
                    is_over = b'"line"' not in data[:8]
                    yield data
                    continue
                said.append(data.decode("utf-8", "replace").rstrip())
                del said[:-_KEPT_LINES]
                yield _line({"line": said[-1], "seconds": 0.0})
        finally:
            self._end(process)
        if not is_over:
            answer = commands.Answer(process.returncode or 1, "", "\n".join(said))
            words = f"the job that makes it ended: {answer.complaint}"
            yield _line({"error": words, "lines": said, "transient": answer.unreachable})

    def _start(self, command: list[str]) -> subprocess.Popen[bytes] | None:
        """Start ``srun``, or return None if the job was stopped before."""
        with self._lock:
            if self._stopped:
                return None
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=commands.environment(os.environ),
            )
            return self._process

    def _give(self, process: subprocess.Popen[bytes], order: Mapping[str, Any]) -> None:
        """Write the order to the program. The input stays open, since the program ends with it."""
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_SOON_S)
        except subprocess.TimeoutExpired:
            self.stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        process.kill()
        process.wait()
        process.stdout.close()

    def stop(self) -> None:
        """End the job, and let none be started. Any thread may call it."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()  # at which srun ends its job


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps({"seconds": 0.0, **value}).encode() + b"\n"


def _place(root: str) -> str:
    """Return the path of the program that makes environments, where the nodes see it."""
    data = pkgutil.get_data("transload.schedulers.environments", "program.py")
    assert data is not None
    make_private(root)
    path = f"{root}/.make-{hashlib.sha256(data).hexdigest()[:16]}.py"
    if not os.path.exists(path):
        write_file(path, data.decode())
    return path
