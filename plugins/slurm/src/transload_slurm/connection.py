"""The connection to the helper on a login node, for many questions at a time.

If it is lost, it is opened again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import IO, Any, Final

from transload.errors import SchedulerUnavailable
from transload.schedulers.cancelling import asker
from transload_slurm import ssh
from transload_slurm.pack import packed
from transload_slurm.wire import (
    HELLO,
    SILENCE_S,
    Channel,
    Message,
    clock,
    error_from_json,
    from_json,
    to_json,
)

_PAUSE_S: Final = (0.5, 30.0)
_HELLO_S: Final = 40.0
_BEAT_S: Final = 10.0
_END_S: Final = 3.0

ANSWER_S: Final = 60.0
"""Seconds for an answer, where nobody says another number."""

THREAD: Final = "transload-slurm-ssh"
"""Begins the names of the threads of a connection."""


class InDoubt(SchedulerUnavailable):
    """No answer came, so that what was asked for may have been done, or not."""


class Lost(InDoubt):
    """The connection broke while an answer was awaited."""


class Connection:
    """A connection to a helper, which is opened when it is first needed.

    If it was lost, it is opened again when it is needed, with growing pauses.

    `shared` gives all schedulers of a process the same one.

    Args:
        host: the login node, as ssh knows it.
        root: the folder of the jobs there.
        python: the Python there.
    """

    def __init__(self, host: str, root: str, python: str) -> None:
        self.host = host
        self._root = root
        self._python = python
        self._key = (host, root, python)
        self._lock = threading.Lock()
        _connections.add(self)
        self._link: Link | None = None
        self._problem = ""
        self._refused = False
        self._pause = self._failed = 0.0
        self.users: set[object] = set()
        """Who has it by `shared` and has not closed it."""
        self.opened = 0
        """How often it was opened."""

    def link(self, longest: float = _PAUSE_S[1]) -> Link:
        """Return the connection, opened if there is none.

        Args:
            longest: seconds after which it is tried again, however often it could not be opened.

        Raises:
            SchedulerUnavailable: if it cannot be opened, or could not a moment ago.
        """
        with self._lock:
            if self._link is not None and self._link.alive:
                return self._link
            if time.monotonic() < self._failed + min(self._pause, longest):
                if self._refused:
                    raise ssh.Refused(self._problem)
                raise SchedulerUnavailable(self._problem)
            if self._link is not None:
                self._link.close()
                self._link = None
            try:
                self._link = Link(self.host, self._root, self._python)
            except SchedulerUnavailable as exc:
                self._problem = str(exc)
                self._refused = isinstance(exc, ssh.Refused)
                self._failed = time.monotonic()
                self._pause = min(max(2 * self._pause, _PAUSE_S[0]), _PAUSE_S[1])
                raise
            self._pause = 0.0
            self.opened += 1
            return self._link

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method on the login node. If the connection breaks, call it once more.

        Raises:
            SchedulerUnavailable: if there is no connection, or no answer.
            TransloadError: whatever the method raised.
        """
        try:
            return self.link().call(method, *arguments, **named)
        except Lost:
            return self.link().call(method, *arguments, **named)

    def close(self, user: object = None) -> None:
        """Let the connection go, once nobody else uses it. A user may close it more than once."""
        with _sharing:
            self.users.discard(user)
            if self.users:
                return
            if _shared.get(self._key) is self:
                del _shared[self._key]
        with self._lock:
            link = self._link
            self._link = None
        if link is not None:
            link.close()

    def forget(self) -> None:
        """Leave the connection to the parent process, in a child of a fork.

        One of the parent's threads may have held the lock.
        """
        self._lock = threading.Lock()
        if self._link is not None:
            self._link.forget()
            self._link = None


_sharing = threading.Lock()
_shared: dict[tuple[str, str, str], Connection] = {}
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def shared(host: str, root: str, python: str, user: object) -> Connection:
    """Return this process's connection to a login node (see `Connection`), for a user to close."""
    with _sharing:
        found = _shared.get((host, root, python))
        if found is None:
            found = _shared[(host, root, python)] = Connection(host, root, python)
        found.users.add(user)
        return found


class Link:
    """One life of the connection.

    Raises:
        Refused: if the login node cannot be used as things are.
        SchedulerUnavailable: if it cannot be reached now.
    """

    def __init__(self, host: str, root: str, python: str) -> None:
        self.host = host
        self.lost = threading.Event()
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[tuple[Message, bytes]]] = {}
        self._listeners: dict[int, Callable[[Message], None]] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._heard = time.monotonic()
        self._why = ""
        self._slot = -1
        try:
            self._start(root, python)
        except OSError as exc:
            self._free()
            raise ssh.not_started(host, exc) from exc
        assert self._process.stdin is not None and self._process.stdout is not None
        self._channel = Channel(self._process.stdout.fileno(), self._process.stdin.fileno())
        too_long = threading.Timer(_HELLO_S, self._process.kill)
        too_long.name = f"{THREAD}-hello"
        too_long.daemon = True
        too_long.start()
        try:
            self.hello = self._handshake(root)
            self._met = clock()
        except BaseException:
            self._process.kill()
            self._free()
            raise
        finally:
            too_long.cancel()
        self._threads = [
            threading.Thread(target=target, daemon=True, name=f"{THREAD}-{name}")
            for name, target in (("reads", self._read), ("beats", self._beat))
        ]
        for thread in self._threads:
            thread.start()

    def _start(self, root: str, python: str) -> None:
        """Start ssh.

        Raises:
            OSError: if this machine does not let it start.
        """
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe might fill, or outlive the process
        socket, self._slot = ssh.take_slot(self.host)
        self._process = subprocess.Popen(
            ssh.command(self.host, socket, python, root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for this process
        )

    def _handshake(self, root: str) -> dict[str, Any]:
        while True:
            line = self._channel.line()
            if line is None:
                code = self._process.wait()
                self._said.seek(0)
                raise ssh.explain(self.host, code, self._said.read().decode("utf-8", "replace"))
            if not line.startswith(HELLO.encode()):
                continue
            word, _, rest = line.decode("utf-8", "replace")[len(HELLO) + 1 :].partition(" ")
            if word == "send":
                try:
                    self._channel.raw(packed(ssh.control_folder())[1])
                except OSError:
                    continue  # the end of the input comes next
            elif word == "old":
                raise ssh.Refused(
                    f"ssh {self.host}: Python {rest} there is too old: 3.8 is needed; "
                    f"{ssh.ANOTHER_PYTHON}"
                )
            elif word == "failed":
                raise ssh.Refused(
                    f"ssh {self.host}: the helper cannot be stored in {root}/bin: {rest}; "
                    'name another place in the cluster\'s settings: folder = "/PATH"'
                )
            else:
                found: dict[str, Any] = json.loads(rest)
                return found

    @property
    def alive(self) -> bool:
        """Whether the connection can be used, since this process made it and it is not lost."""
        return not self.lost.is_set() and self._pid == os.getpid()

    def there(self, seconds: float) -> float:
        """Return what the helper's clock shows in so many seconds from now, or a little less."""
        return float(self.hello["clock"]) + clock() - self._met + seconds

    def call(self, method: str, *arguments: Any, timeout: float = ANSWER_S, **named: Any) -> Any:
        """Call a method of the helper, or of the scheduler on the login node.

        Args:
            method: its name.
            arguments: its arguments, of the kinds that `wire.to_json` knows.
            timeout: seconds.
            named: arguments by name, likewise. A ``payload`` is bytes.

        Raises:
            Lost: if the connection breaks meanwhile.
            InDoubt: if there is no answer in time.
            TransloadError: whatever the method raised.
        """
        return self.answer(self.ask(method, *arguments, **named), timeout)

    def answer(self, asked: Future[tuple[Message, bytes]], timeout: float) -> Any:
        """Return the answer of `ask`. The errors are those of `call`."""
        try:
            message, payload = asked.result(timeout)
        except FutureTimeout as exc:
            raise InDoubt(f"ssh {self.host}: no answer within {timeout:g} s") from exc
        if "error" in message:
            raise error_from_json(message["error"])
        if message["is_bytes"]:
            return payload
        return from_json(message["result"])

    def ask(
        self, method: str, *arguments: Any, payload: bytes = b"", **named: Any
    ) -> Future[tuple[Message, bytes]]:
        """Call a method as `call` does, without waiting, and return the future of its answer."""
        number = next(self._numbers)
        answer: Future[tuple[Message, bytes]] = Future()
        with self._lock:
            self._pending[number] = answer
        message = {
            "id": number,
            "method": method,
            "arguments": to_json(arguments),
            "named": to_json(named),
            "asker": asker(),
        }
        try:
            self._channel.send(message, payload)
        except OSError:
            self._lose("")
        if self.lost.is_set():
            self._fail()
        return answer

    def listen(self, heard: Callable[[Message], None]) -> int:
        """Have ``heard`` called in the reading thread with each message of a watch.

        Return the key of the watch.
        """
        with self._lock:
            key = next(self._numbers)
            self._listeners[key] = heard
        return key

    def unlisten(self, key: int) -> None:
        """Call it no more."""
        with self._lock:
            self._listeners.pop(key, None)

    def _read(self) -> None:
        why = ""
        try:
            for message, payload in self._channel.messages():
                self._heard = time.monotonic()
                if "listener" in message:
                    with self._lock:
                        heard = self._listeners.get(message["listener"])
                    if heard is not None:
                        heard(message)
                    continue
                with self._lock:
                    answer = self._pending.pop(message.get("id", 0), None)
                if answer is not None:
                    answer.set_result((message, payload))
        except (OSError, ValueError) as exc:
            why = str(exc)
        self._lose(why)

    def _beat(self) -> None:
        """Let the helper know that we are here, and notice when it is silent."""
        while not self.lost.wait(_BEAT_S):
            if time.monotonic() - self._heard > SILENCE_S:
                self._process.kill()
                return
            self.ask("ping")

    def _lose(self, why: str) -> None:
        with self._lock:
            self._why = self._why or why
        self.lost.set()
        self._fail()

    def _fail(self) -> None:
        with self._lock:
            pending = self._pending
            self._pending = {}
        said = ""
        with contextlib.suppress(OSError, ValueError):
            self._said.seek(0)
            said = self._said.read().decode("utf-8", "replace").strip()
        text = f"ssh {self.host}: the connection was lost"
        if said:
            text += f": {said}"
        for answer in pending.values():
            answer.set_exception(Lost(text))

    def close(self) -> None:
        """End the connection. The helper ends at the end of its input."""
        if self._pid != os.getpid():
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if self.lost.is_set():
            self._process.kill()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._lose("it was closed")
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_END_S)
        self._free()

    def _free(self) -> None:
        process: subprocess.Popen[bytes] | None = getattr(self, "_process", None)
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()
        if self._slot >= 0:
            os.close(self._slot)
            self._slot = -1
        said: IO[bytes] | None = getattr(self, "_said", None)
        if said is not None:
            said.close()

    def forget(self) -> None:
        """Leave the process to the parent, in a child of a fork."""
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        self._process.returncode = 0  # it is not our child
        os.close(self._slot)


def _after_fork() -> None:
    global _sharing
    _sharing = threading.Lock()
    for connection in list(_connections):
        with contextlib.suppress(OSError, ValueError):
            connection.forget()


os.register_at_fork(after_in_child=_after_fork)
