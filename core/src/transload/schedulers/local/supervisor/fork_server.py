"""The fork server, which listens on a socket, and forks a guard and a supervisor for each job.

Each connection is one request. The forked supervisor reads and answers it. The fork server itself
reads nothing, and knows no job. Jobs go on when it is killed. It ends when no job runs, and no
request has come for a moment.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import select
import sys
import time

from . import guard, kernel, processes, protocol, supervise
from .kernel import signal
from .protocol import socket

_FIRST_CLIENT_S = 10.0
_IDLE_S = 2.0  # clients that submit one job after the other need not start it each time
_DEAF_S = 0.1  # connections wait in the kernel so long when there are no descriptors


class ForkServer:
    """The loop of the fork server."""

    def __init__(self, home: str, listener: socket.socket) -> None:
        self.home = home
        self.listener = listener
        self.guards: set[int] = set()
        self.idle_until = time.monotonic() + _FIRST_CLIENT_S
        self.wake = kernel.wake_on(signal.SIGCHLD)
        self.poll = select.poll()
        self.poll.register(self.wake, select.POLLIN)
        self.poll.register(listener.fileno(), select.POLLIN)

    def run(self) -> None:
        """Serve until nobody needs it."""
        while True:
            self.poll.poll(self._timeout())
            kernel.drain(self.wake)
            accepted = self._accept()
            ended = self._reap()
            now = time.monotonic()
            if accepted or ended:
                self.idle_until = now + _IDLE_S
            elif not self.guards and now >= self.idle_until:
                return

    def _timeout(self) -> float | None:
        """Return the milliseconds to wait for something to happen, or None while a job runs."""
        if self.guards:
            return None
        return max(0.0, self.idle_until - time.monotonic()) * 1000 + 1

    def _accept(self) -> bool:
        """Fork for each new connection, and return True if there was one."""
        accepted = False
        while True:
            try:
                fd, _ = self.listener._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                return accepted
            except OSError as exc:
                if exc.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(_DEAF_S)
                elif exc.errno != errno.ECONNABORTED:
                    raise
                return accepted
            accepted = True
            client = socket.socket(fileno=fd)
            if protocol.peer_uid(client) in (os.getuid(), 0):
                self._fork(client)
            client.close()

    def _fork(self, client: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError as exc:
            protocol.refuse(client, f"cannot start a supervisor: {exc.strerror}")
            return
        if pid == 0:
            self._become_guard(client)
        self.guards.add(pid)

    def _become_guard(self, client: socket.socket) -> None:
        """Guard a supervisor in the forked child. This never returns."""
        signal.set_wakeup_fd(-1)
        try:
            fd = os.dup2(client.detach(), 3, inheritable=False)
            kernel.close_from(4)
            guard.run(self.home, socket.socket(fileno=fd), supervise.main)
        except BaseException:  # whatever it was, the fork server's loop must not run here
            sys.stderr.write(kernel.exception_text())
        finally:
            sys.stderr.flush()
            os._exit(0)

    def _reap(self) -> bool:
        """Forget guards that have ended, and return True if there was one."""
        ended = False
        while self.guards:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return ended
            self.guards.discard(pid)
            ended = True
        return ended


def _listen(home: str, name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.unlink(f"{home}/{name}")  # of one that is gone, since the caller holds the start lock
    except FileNotFoundError:
        pass
    protocol.with_address(home, name, listener.bind)
    os.chmod(f"{home}/{name}", 0o600)
    listener.listen(256)
    listener.setblocking(False)
    return listener


def _lift_limits() -> None:
    """Raise this process's limits as far as the system allows.

    The limits of the first submitter are not those of all later jobs.
    """
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            number = getattr(resource, name)
            _, hard = resource.getrlimit(number)
            soft = min(hard, 1 << 16) if number == resource.RLIMIT_NOFILE and hard > 0 else hard
            try:
                resource.setrlimit(number, (soft, hard))
            except (OSError, ValueError):
                pass
    try:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    except (OSError, AttributeError):
        pass


def main(home: str, name: str) -> None:
    """Become the fork server of a state folder.

    The caller's process ends as soon as the socket listens.
    """
    kernel.close_from(3)
    os.umask(0o077)
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)  # until the other one listens, or is dead
        os._exit(0)
    os.setsid()
    processes.enter(home, b"tl-spawner")
    processes.forget_dead(home)
    listener = _listen(home, name)
    os.close(reader)
    os.close(writer)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _lift_limits()
    processes.snapshot()  # whatever code is needed later is loaded before
    kernel.oom_kills()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        ForkServer(home, listener).run()
    except BaseException:
        sys.stderr.write(kernel.exception_text())
        raise
    finally:
        processes.leave(home)
        sys.stderr.flush()
    os._exit(0)
