"""The fork server: listens on a socket and gives each app a supervisor. It ends when it has neither
a client nor an app.

It is parent of all supervisors and, as a subreaper, of what a dead supervisor leaves behind: that
it kills at once. Apps do not need it: when it is killed, their supervisors go on. A supervisor
whose app has ended may get the next one, which costs half of a new one's start; a few are kept for
that, as long as there are clients.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import select
import sys
import time
from types import SimpleNamespace

from . import finalise, kernel, layout, protocol, supervise, tree
from .kernel import signal
from .protocol import socket

_FIRST_CLIENT_S = 10.0
_DEAF_S = 0.1  # out of descriptors: connections wait in the kernel so long
_STRAYS_S = (0.02, 1.0)  # between looks at killed processes that do not report their end by SIGCHLD
_SPARE = 2  # supervisors without an app that are kept

Peer = SimpleNamespace
"""Who is at the other end of a socket: a client, or a supervisor, with its app and the client that
awaits its answer."""


def _peer(sock: socket.socket, app_id: str = "", client: Peer | None = None) -> Peer:
    return Peer(sock=sock, received=bytearray(), app_id=app_id, client=client, ending=False)


class ForkServer:
    """The loop of the fork server."""

    def __init__(self, home: str, listener: socket.socket) -> None:
        self.home = home
        self.listener = listener
        self.clients: dict[int, Peer] = {}
        self.supervisors: dict[int, Peer] = {}
        self.links: dict[int, Peer] = {}
        self.free: list[Peer] = []
        self.poll = select.poll()
        self.leaving: list[socket.socket] = []
        self.strays = False
        self.pause = _STRAYS_S[0]
        self.dead: list[tuple[int, str]] = []
        self.seen_client = False
        self.wake = kernel.wake_on(signal.SIGCHLD)
        self.poll.register(self.wake, select.POLLIN)
        self.poll.register(listener.fileno(), select.POLLIN)

    def run(self) -> None:
        """Serve until there is nobody left to serve."""
        give_up = time.monotonic() + _FIRST_CLIENT_S
        while True:
            if not self.clients and not self.supervisors and not self.strays and not self.dead:
                idle = self.seen_client or time.monotonic() > give_up
                if idle and not self._accept():
                    return
            self._serve(give_up)
            self._let_go()
            while self.free and not self.clients:
                self._unlink(self.free[0])

    def _let_go(self) -> None:
        """Tell clients that wait for the end of this process that it stays, once that is known."""
        if self.leaving and (
            self.clients or any(not child.ending for child in self.supervisors.values())
        ):
            for sock in self.leaving:
                try:
                    sock.send(protocol.frame(protocol.STAY))
                except OSError:
                    pass
                sock.close()
            self.leaving = []

    def _serve(self, give_up: float) -> None:
        seconds = None
        if self.strays or self.dead:
            seconds = self.pause
        elif not self.seen_client:
            seconds = max(0.0, give_up - time.monotonic())
        ready = self.poll.poll(None if seconds is None else seconds * 1000 + 1)
        for (
            fd,
            _,
        ) in ready:  # supervisors first: a client that says goodbye may have seen its app end
            if fd in self.links:
                self._answer(self.links[fd])
        for fd, _ in ready:
            if fd == self.wake:
                kernel.drain(self.wake)
            elif fd == self.listener.fileno():
                self._accept()
            elif fd in self.clients:
                self._talk(self.clients[fd])
        self._reap()
        if self.strays or self.dead:
            self._clear_strays()

    # ------------------------------------------------------------------------------------------------------
    # clients

    def _accept(self) -> bool:
        """Take new connections; True if there was one."""
        taken = False
        while True:
            try:
                fd, _ = self.listener._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                return taken
            except OSError as exc:
                if exc.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(_DEAF_S)
                elif exc.errno != errno.ECONNABORTED:
                    raise
                return taken
            sock = socket.socket(fileno=fd)
            sock.setblocking(False)
            if protocol.peer_uid(sock) not in (os.getuid(), 0):
                sock.close()
                continue
            self.clients[sock.fileno()] = _peer(sock)
            self.poll.register(sock.fileno(), select.POLLIN)
            self.seen_client = taken = True

    def _talk(self, client: Peer) -> None:
        try:
            data = client.sock.recv(1 << 16)
            if not data:
                raise EOFError
            client.received += data
            for kind, payload in protocol.split(client.received):
                self._handle(client, kind, payload)
        except BlockingIOError:
            pass
        except (OSError, EOFError, ValueError):
            self._forget(client)

    def _forget(self, client: Peer) -> None:
        fd = client.sock.fileno()
        if self.clients.pop(fd, None) is None:
            return
        self.poll.unregister(fd)
        for child in self.links.values():
            if child.client is client:
                child.client = None
        client.sock.close()

    def _reply(self, client: Peer | None, data: bytes) -> None:
        """Send a client its answer, which is short; one that does not read so little is let go."""
        if (
            client is not None
            and client.sock.fileno() in self.clients
            and not self._send(client, data)
        ):
            self._forget(client)

    def _send(self, peer: Peer, data: bytes) -> bool:
        try:
            return bool(peer.sock.send(data) == len(data))
        except OSError:
            return False

    def _handle(self, client: Peer, kind: int, payload: bytes) -> None:
        if kind == protocol.SUBMIT:
            self._submit(client, payload)
        elif kind == protocol.BYE:
            # whoever leaves sees the end of this process as the end of the connection, or is told
            # that it stays
            fd = client.sock.fileno()
            self.poll.unregister(fd)
            del self.clients[fd]
            self.leaving.append(client.sock)
            for child in list(self.links.values()):
                if child.client is client:
                    child.client = None
                self._answer(child)

    # ------------------------------------------------------------------------------------------------------
    # supervisors

    def _submit(self, client: Peer, payload: bytes) -> None:
        name, _, body = payload.partition(b"\n")
        app_id = os.fsdecode(name)
        message = protocol.frame(protocol.SUBMIT, payload)
        while self.free and len(message) <= protocol.SMALL:
            child = self.free.pop()
            if self._send(child, message):
                child.app_id, child.client, child.ending = app_id, client, False
                return
            self._unlink(child)
        try:
            ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError as exc:
            why = f"cannot start a supervisor: {exc.strerror}"
            self._refuse(client, {"error": "submit", "transient": True, "message": why})
            return
        if pid == 0:
            self._become_supervisor(app_id, body, theirs)
        theirs.close()
        ours.setblocking(False)
        child = _peer(ours, app_id, client)
        self.supervisors[pid] = self.links[ours.fileno()] = child
        self.poll.register(ours.fileno(), select.POLLIN)

    def _refuse(self, client: Peer | None, error: dict[str, object]) -> None:
        self._reply(client, protocol.frame(protocol.REPLY, layout.dumps(error)))

    def _become_supervisor(self, app_id: str, body: bytes, link: socket.socket) -> None:
        """Run a supervisor in the forked child; never returns."""
        code = 70
        signal.set_wakeup_fd(-1)
        try:
            fd = os.dup2(link.detach(), 3, inheritable=False)
            kernel.close_from(4)
            supervise.main(self.home, app_id, body, fd)
            code = 0
        except BaseException:  # whatever it was, the fork server's loop must not run here
            sys.stderr.write(kernel.exception_text())
        finally:
            os._exit(code)

    def _answer(self, child: Peer) -> None:
        """Pass a supervisor's answer on to the client that waits for it."""
        try:
            data = child.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._unlink(child)
            return
        child.received += data
        for kind, payload in protocol.split(child.received):
            if kind == protocol.ENDING:
                child.ending = True
            elif kind == protocol.FREE and len(self.free) < _SPARE:
                self.free.append(child)
            elif kind == protocol.FREE:
                self._unlink(child)
            else:
                self._reply(child.client, protocol.frame(kind, payload))
                child.client = None

    def _unlink(self, child: Peer) -> None:
        fd = child.sock.fileno()
        if child in self.free:
            self.free.remove(child)
        if fd >= 0 and self.links.pop(fd, None) is not None:
            self.poll.unregister(fd)
            child.sock.close()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.strays = False
                return
            if pid == 0:
                return
            child = self.supervisors.pop(pid, None)
            if child is None:
                continue
            if child.sock.fileno() >= 0:
                self._answer(child)
            self._refuse(child.client, {"error": "again"})
            self._unlink(child)
            if status != 0:
                self.strays = True
                self.dead.append((pid, child.app_id))

    def _clear_strays(self) -> None:
        """Kill what dead supervisors left behind (all such processes are children of this one),
        then write their end.
        """
        # a supervisor forked just now may not have entered itself as a helper yet
        processes = {
            pid: stat for pid, stat in tree.snapshot().items() if pid not in self.supervisors
        }
        orphans = tree.below(processes, {os.getpid()})
        tree.signal_all(processes, orphans, signal.SIGKILL)
        self._reap()
        self.pause = min(self.pause * 2, _STRAYS_S[1]) if orphans else _STRAYS_S[0]
        if not orphans:
            self.strays = False
            dead, self.dead = self.dead, []
            for pid, app_id in dead:
                layout.remove_unfinished(self.home, pid)
                finalise.finalise(self.home, app_id)


def _listen(home: str, name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.unlink(f"{home}/{name}")  # of one that is gone: the caller holds the start lock
    except FileNotFoundError:
        pass
    protocol.with_address(home, name, listener.bind)
    os.chmod(f"{home}/{name}", 0o600)
    listener.listen(256)
    listener.setblocking(False)
    return listener


def _lift_limits() -> None:
    """Be as free as the system lets us: the limits of whoever came first are not those of all later
    apps.
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
    """Become the fork server of a state folder: the caller's process ends as soon as the socket
    listens.
    """
    kernel.close_from(3)
    os.umask(0o077)
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)  # until the other one listens, or is dead
        os._exit(0)
    os.setsid()
    tree.enter(home, b"tl-spawner")
    tree.forget_dead(home)
    listener = _listen(home, name)  # here: clients see the pid of the process that listened
    os.close(reader)
    os.close(writer)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _lift_limits()
    kernel.become_subreaper()
    tree.snapshot()  # whatever code is needed later is loaded before
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
        tree.leave(home)
        sys.stderr.flush()
    # sockets close with the process: whoever sees them closed sees the process gone
    os._exit(0)
