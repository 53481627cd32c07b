"""Start the keeper of a job, a program of its own that outlives this process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any, Final

import transload
from transload.errors import SchedulerUnavailable, SubmitError
from transload.keeper import layout, processes
from transload.schedulers.local import scope

_ANSWER_S: Final = 60.0
_END_S: Final = 5.0
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH")


def start(local: str, request: dict[str, Any]) -> dict[str, Any]:
    """Start a keeper, give it a request, and return its answer.

    After an exception nothing is started any more, and what was started is dead.

    Args:
        local: folder of the local scheduler.
        request: as `submission_body` returns it.

    Raises:
        SubmitError: if no keeper can be started, or it ends without an answer.
        SchedulerUnavailable: if it does not answer.
    """
    message = json.dumps(request).encode() + b"\n"
    scoped = scope.command()
    if scoped:
        with contextlib.suppress(SubmitError):  # the manager may refuse
            return _ask(local, message, scoped)
    return _ask(local, message, [])


def _ask(local: str, message: bytes, scoped: list[str]) -> dict[str, Any]:
    theirs, ours = os.pipe()
    answers, answer = os.pipe()
    opened = [theirs, ours, answers, answer]
    pid = 0
    try:
        pid = _spawn(local, theirs, answer, scoped)
        for fd in (theirs, answer):
            opened.remove(fd)
            os.close(fd)
        deadline = time.monotonic() + _ANSWER_S
        _send(ours, message, deadline)
        data = _receive(answers, deadline)
    except BaseException:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # with what it has forked
            _await_end(answers)
        raise
    finally:
        for fd in opened:
            os.close(fd)
        if pid:
            with contextlib.suppress(ChildProcessError):  # a program that ignores SIGCHLD
                os.waitpid(pid, 0)
    if not data:
        raise SubmitError(
            f"the keeper of the job ended without an answer: see {local}/keepers.log",
            transient=True,
        )
    found: dict[str, Any] = layout.loads(data)
    return found


def _send(fd: int, message: bytes, deadline: float) -> None:
    """Write a message, as fast as it is read. One that ends before gives no answer."""
    os.set_blocking(fd, False)
    rest = memoryview(message)
    with contextlib.suppress(BrokenPipeError):
        while rest:
            _await(fd, select.POLLOUT, deadline)
            rest = rest[os.write(fd, rest) :]


def _receive(fd: int, deadline: float) -> bytes:
    """Return what is written until the other side closes, or ends."""
    data = b""
    while not data.endswith(b"\n"):
        _await(fd, select.POLLIN, deadline)
        part = os.read(fd, 1 << 16)
        if not part:
            return b""
        data += part
    return data


def _await(fd: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise SchedulerUnavailable("the keeper of the job does not answer")


def _await_end(fd: int) -> None:
    """Wait until all are dead who could write what is read here."""
    deadline = time.monotonic() + _END_S
    with contextlib.suppress(SchedulerUnavailable):
        while _receive(fd, deadline):
            pass


def _spawn(local: str, stdin: int, stdout: int, scoped: list[str]) -> int:
    """Start a program that becomes the keeper, in a session of its own, and return its pid.

    It inherits almost nothing of the environment, but the limits and the control group.
    """
    program = sys.executable or getattr(sys, "_base_executable", "")
    env = {processes.MARK: "1", "LC_ALL": "C.UTF-8"}
    env |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if scoped:
        env["XDG_RUNTIME_DIR"] = scope.runtime_folder()
    code = f"{import_keeper()}.main({local!r})"
    argv = [*scoped, program, "-I", "-S", "-X", "utf8", "-c", code]
    log = f"{local}/keepers.log"
    handled = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=handled,
        )
    except OSError as exc:
        raise SubmitError(
            f"cannot start a keeper ({program!r}, log {log}): {exc.strerror}", transient=True
        ) from exc


def import_keeper() -> str:
    """Return code that imports the keeper without the rest of transload.

    The packages above it are empty there, so that nothing is loaded but the modules that it names.
    """
    package = os.path.dirname(os.path.abspath(transload.__file__))
    folders = {"transload": package}
    folders |= {f"transload.{name}": f"{package}/{name}" for name in ("keeper", "runtime")}
    empty = "".join(
        f"module = sys.modules[{name!r}] = type(sys)({name!r}); module.__path__ = [{folder!r}]; "
        for name, folder in folders.items()
    )
    return f"import sys; {empty}from transload.keeper import keeper; keeper"
