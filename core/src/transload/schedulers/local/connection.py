"""Find or start the fork server, and submit jobs through it."""

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
from typing import Any, Final

import transload
from transload.errors import SchedulerUnavailable, SubmitError
from transload.schedulers.local import scope
from transload.schedulers.local.supervisor import layout, protocol
from transload.schedulers.local.supervisor.kernel import signal
from transload.schedulers.local.supervisor.protocol import socket

_ATTEMPTS: Final = 6
_ANSWER_S: Final = 60.0
_SCOPE_S: Final = 10.0  # systemd's manager may hang
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH", "DBUS_SESSION_BUS_ADDRESS")
_SOCKET: Final = f"spawner-{transload.__version__}-{protocol.VERSION}.sock"


def submit(local: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the fork server, and return the supervisor's answer.

    It is sent again if the connection breaks. The token in the job's record makes that safe. After
    an exception, the job may still be started by a request that was sent. `creation.withdraw`
    prevents that.

    Args:
        local: folder of the local scheduler.
        request: as `submission_body` returns it.

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
            # it was about to end, or was killed, so the next attempt starts another one
            time.sleep(0.002 * attempt)
    raise SubmitError(
        f"the fork server in {local} broke the connection {_ATTEMPTS} times; see spawner.log there",
        transient=True,
    )


def _ask(local: str, message: bytes) -> dict[str, Any]:
    sock = _connect(local)
    try:
        # a server that cannot start a supervisor answers before it has read all
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
            sock = _try(local)  # another process may have started one
            if sock is not None:
                return sock
            if attempt == 0:
                _start(local, scope.command())
            elif attempt < _ATTEMPTS:
                time.sleep(0.01 * attempt)  # the last one was killed, or could not begin
                _start(local, [])
    raise SubmitError(f"cannot start the fork server: see {local}/spawner.log", transient=True)


def _try(local: str) -> socket.socket | None:
    """Return a connection to a fork server of this user, None if none listens.

    Raises:
        TimeoutError: if its queue of waiting connections stays full.
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
    """Start a fork server, and wait until it listens. It inherits almost nothing of this process.

    Args:
        local: folder of the local scheduler.
        scoped: a command that runs it in a separate systemd scope, or [] for none.
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
    longest = _ANSWER_S
    if scoped:
        longest = _SCOPE_S
    if not _has_ended(pid, longest):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # a program that ignores SIGCHLD has no zombies
        os.waitpid(pid, 0)


def import_fork_server() -> str:
    """Return code that imports the supervisor's package without the rest of transload.

    Its packages are empty there, so that nothing is loaded but the modules that it names.
    """
    parent = os.path.dirname(os.path.abspath(__file__))
    package = os.path.dirname(os.path.abspath(transload.__file__))
    folders = {"transload": package, "transload.runtime": f"{package}/runtime"}
    empty = "".join(
        f"module = sys.modules[{name!r}] = type(sys)({name!r}); module.__path__ = [{folder!r}]; "
        for name, folder in folders.items()
    )
    return (
        f"import sys; sys.path.insert(0, {parent!r}); {empty}"
        "import supervisor.fork_server; supervisor.fork_server"
    )


def _has_ended(pid: int, longest: float) -> bool:
    """Wait for the end of a process, and tell whether it has ended.

    A system without pidfd cannot tell, and the answer is True.

    Args:
        pid: the process.
        longest: the longest wait in seconds.
    """
    try:
        fd = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(longest * 1000))
    finally:
        os.close(fd)
