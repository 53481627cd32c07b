"""The client's end of a connection to the fork server: finds it, starts it, submits through it."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import transload
from transload.errors import SchedulerUnavailable, SubmitError
from transload.schedulers.local import scope
from transload.schedulers.local.supervisor import layout, protocol
from transload.schedulers.local.supervisor.kernel import signal
from transload.schedulers.local.supervisor.protocol import socket

_ATTEMPTS: Final = 6
_ANSWER_S: Final = 60.0
_SCOPE_S: Final = 10.0  # a manager that hangs is not waited for
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH", "DBUS_SESSION_BUS_ADDRESS")
_SOCKET: Final = f"spawner-{transload.__version__}-{protocol.VERSION}.sock"


def submit(local: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send what `submission_body` returns; return the supervisor's answer.

    It is sent again if the connection breaks: the token in the job's record makes that safe.
    Whatever is raised, the job may still be started by what was sent; `creation.withdraw` prevents
    that.

    Raises:
        SubmitError: if there is no fork server and none can be started.
        SchedulerUnavailable: if it does not answer.
    """
    message = json.dumps(request).encode()
    for attempt in range(_ATTEMPTS):
        try:
            return _ask(local, message)
        except TimeoutError as exc:
            raise SchedulerUnavailable(f"the fork server in {local} does not answer") from exc
        except (OSError, ValueError):
            # it was on its way out, or was killed: the next one takes its place
            time.sleep(0.002 * attempt)
    raise SubmitError(
        f"the fork server in {local} breaks off again and again: see spawner.log there",
        transient=True,
    )


def _ask(local: str, message: bytes) -> dict[str, Any]:
    sock = _connect(local)
    try:
        # one that cannot start a supervisor answers before it has read all
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(message)
            sock.shutdown(socket.SHUT_WR)
        return protocol.receive(sock)
    finally:
        sock.close()


def _connect(local: str) -> socket.socket:
    """Return a connection to the user's fork server, which is started if there is none."""
    sock = _try(local)
    if sock is not None:
        return sock
    with layout.locked(f"{local}/start.lock", _ANSWER_S):
        for attempt in range(_ATTEMPTS + 1):
            sock = _try(local)  # at first: somebody else may have started one
            if sock is not None:
                return sock
            if attempt:
                time.sleep(0.01 * attempt)  # it was killed at once, or could not begin
            if attempt < _ATTEMPTS:
                _start(local, [] if attempt else scope.command())
    raise SubmitError(f"cannot start the fork server: see {local}/spawner.log", transient=True)


def _try(local: str) -> socket.socket | None:
    """Return a connection to a fork server of this user, None if none listens.

    Raises:
        TimeoutError: if so many wait to be heard already that there is no room for one more.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # not `settimeout`, with which a full queue is an error at once
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", math.ceil(_ANSWER_S), 0)
        )
        protocol.with_address(local, _SOCKET, sock.connect)
        if protocol.peer_uid(sock) != os.geteuid():
            raise SchedulerUnavailable(f"the socket {local}/{_SOCKET} is another user's")
        sock.settimeout(_ANSWER_S)
    except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
        sock.close()
        return None
    except BlockingIOError as exc:
        sock.close()
        raise TimeoutError(errno.ETIMEDOUT, "it takes no connection") from exc
    except BaseException:
        sock.close()
        raise
    return sock


def _start(local: str, scoped: list[str]) -> None:
    """Start a fork server, perhaps by a command that gives it a scope of its own; returns when
    it listens.

    It inherits nothing of this process but its identity.
    """
    code = f"{import_fork_server()}.main({local!r}, {_SOCKET!r})"
    program = sys.executable or getattr(sys, "_base_executable", "")
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
        "LC_ALL": "C.UTF-8"
    }
    if scoped:
        env["XDG_RUNTIME_DIR"] = scope.runtime_folder()
    argv = [*scoped, program, "-I", "-S", "-X", "utf8", "-c", code]
    log = f"{local}/spawner.log"
    numbers = [
        number
        for number in signal.valid_signals()
        if number not in (signal.SIGKILL, signal.SIGSTOP)
    ]
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            ],
            setsigmask=[],
            setsigdef=numbers,
        )
    except OSError as exc:
        raise SubmitError(
            f"cannot start the fork server ({program!r}, log {log}): {exc.strerror}",
            transient=True,
        ) from exc
    with _process(pid) as ends:
        if not ends(_SCOPE_S if scoped else _ANSWER_S):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # a host that ignores SIGCHLD reaps for us
        os.waitpid(pid, 0)


def import_fork_server() -> str:
    """Return code that imports the supervisor as a package of its own, and nothing else of
    transload's packages.
    """
    parent = os.path.dirname(os.path.abspath(__file__))
    package = os.path.dirname(os.path.abspath(transload.__file__))
    return (
        f"import sys; sys.path.insert(0, {parent!r}); "
        "transload = sys.modules['transload'] = type(sys)('transload'); transload.__path__ = "
        f"[{package!r}]; "
        "import supervisor.fork_server; supervisor.fork_server"
    )


@contextlib.contextmanager
def _process(pid: int) -> Iterator[Callable[[float], bool]]:
    """Give what waits for the end of a process, so many seconds: False if it goes on. Without pidfd
    nothing waits.
    """
    try:
        fd = os.pidfd_open(pid)
    except (OSError, AttributeError):
        yield lambda seconds: True
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        yield lambda seconds: bool(poll.poll(seconds * 1000))
    finally:
        os.close(fd)
