"""The client's end of the connection to the fork server: finds it, starts it, submits through it,
lets it go.
"""

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
from transload.runtime.forks import fork_lock
from transload.schedulers.local import scope
from transload.schedulers.local.supervisor import layout, protocol
from transload.schedulers.local.supervisor.kernel import signal
from transload.schedulers.local.supervisor.protocol import socket

_ATTEMPTS: Final = 6
_ANSWER_S: Final = 60.0
# a busy machine takes its time to end processes; one that is stopped is not waited for long
_GOODBYE_S: Final = 5.0
_SCOPE_S: Final = 10.0  # a manager that hangs is not waited for
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH", "DBUS_SESSION_BUS_ADDRESS")


class Connection:
    """A connection to the user's fork server, made when it is first needed. May be used from any
    thread.
    """

    def __init__(self, local: str) -> None:
        self._local = local
        self._name = f"spawner-{transload.__version__}-{protocol.VERSION}.sock"
        self._lock = fork_lock()
        self._sock: socket.socket | None = None
        self._pid = 0

    def submit(self, app_id: str, body: bytes) -> dict[str, Any]:
        """Send an app; return the supervisor's answer. Sent again if the connection breaks: the
        app's id makes that safe.

        Whatever is raised, the app may still be started by what was sent: `layout.withdraw` sees to
        that.

        Raises:
            SubmitError: if there is no fork server and none can be started.
            SchedulerUnavailable: if it does not answer.
        """
        message = protocol.frame(protocol.SUBMIT, os.fsencode(app_id) + b"\n" + body)
        with self._lock:
            for attempt in range(_ATTEMPTS):
                try:
                    answer = self._ask(message)
                except TimeoutError as exc:
                    self._drop()
                    raise SchedulerUnavailable(
                        f"the fork server in {self._local} does not answer"
                    ) from exc
                except (OSError, EOFError):
                    self._drop()
                    time.sleep(
                        0.002 * attempt
                    )  # it was on its way out, or was killed: the next one takes its place
                    continue
                except (
                    BaseException
                ):  # a signal's: the answer on its way would be taken for that of the next app
                    self._drop()
                    raise
                if answer.get("error") != "again":
                    return answer
        raise SubmitError(
            f"the fork server in {self._local} breaks off again and again: see spawner.log there",
            transient=True,
        )

    def _ask(self, message: bytes) -> dict[str, Any]:
        if self._sock is None or self._pid != os.getpid():
            # a connection made before a fork belongs to the parent: two processes cannot share it
            self._sock, self._pid = self._connect(), os.getpid()
        self._sock.sendall(message)
        kind, payload = protocol.receive(self._sock)
        if kind != protocol.REPLY:
            raise EOFError
        answer: dict[str, Any] = json.loads(payload)
        return answer

    def _drop(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def close(self) -> None:
        """Let the fork server go; if nobody else needs it, it has ended when this returns."""
        with self._lock:
            sock, self._sock = self._sock, None
            if sock is None:
                return
            with contextlib.closing(sock):
                if self._pid == os.getpid():
                    _say_goodbye(sock)

    # -------------------------------------------------------------------------------------------------
    # starting one

    def _connect(self) -> socket.socket:
        sock = self._try()
        if sock is not None:
            return sock
        with layout.locked(f"{self._local}/start.lock", _ANSWER_S):
            for attempt in range(_ATTEMPTS + 1):
                sock = self._try()  # at first: somebody else may have started one
                if sock is not None:
                    return sock
                if attempt:
                    time.sleep(0.01 * attempt)  # it was killed at once, or could not begin
                if attempt < _ATTEMPTS:
                    self._start([] if attempt else scope.command())  # returns when it listens
        raise SubmitError(
            f"cannot start the fork server: see {self._local}/spawner.log", transient=True
        )

    def _try(self) -> socket.socket | None:
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
            protocol.with_address(self._local, self._name, sock.connect)
            if protocol.peer_uid(sock) != os.geteuid():
                raise SchedulerUnavailable(
                    f"the socket {self._local}/{self._name} is another user's"
                )
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

    def _start(self, scoped: list[str]) -> None:
        """Start a fork server, perhaps by a command that gives it a scope of its own; returns when
        it listens.

        It inherits nothing of this process but its identity.
        """
        code = f"{import_fork_server()}.main({self._local!r}, {self._name!r})"
        program = sys.executable or getattr(sys, "_base_executable", "")
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
            "LC_ALL": "C.UTF-8"
        }
        if scoped:
            env["XDG_RUNTIME_DIR"] = scope.runtime_folder()
        argv = [*scoped, program, "-I", "-S", "-X", "utf8", "-c", code]
        log = f"{self._local}/spawner.log"
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


def _say_goodbye(sock: socket.socket) -> None:
    """Leave; return when the fork server has ended, or has said that it stays."""
    with _process(protocol.peer_pid(sock)) as ends, contextlib.suppress(OSError):
        try:
            sock.settimeout(_GOODBYE_S)
            sock.sendall(protocol.frame(protocol.BYE))
            protocol.receive(sock)
        except EOFError:
            ends(_GOODBYE_S)  # a dying process closes its sockets a moment before it is gone
