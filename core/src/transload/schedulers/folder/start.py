"""Start the keeper of a job, a program of its own that outlives this process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from typing import Any, Final, NamedTuple

from transload.errors import SchedulerUnavailable, SubmitError
from transload.keeper import layout
from transload.schedulers.folder import scope

__all__ = ["Program", "notify_start", "start"]

_ANSWER_S: Final = 60.0
_END_S: Final = 5.0
_ROW_S: Final = 1.0  # between two submits in a row, for which keepers are started ahead
_MOST_AHEAD: Final = 4


class Program(NamedTuple):
    """The program of an engine's keepers.

    Args:
        options: what Python gets in front of it.
        module: code whose value has the function ``main``, which takes the folder of the scheduler
            and the seconds for which it waits for a request.
        variables: its environment.
    """

    options: tuple[str, ...]
    module: str
    variables: dict[str, str]


class _Waiting:
    """A keeper that waits for a request.

    Args:
        pid: of its first process, which leaves it to itself at once.
        requests: where it reads a request from.
        answers: where it answers.
        place: what it has taken over from this process (`_place`).
    """

    def __init__(self, pid: int, requests: int, answers: int, place: object) -> None:
        self.pid = pid
        self.requests = requests
        self.answers = answers
        self.place = place
        self._reaper = threading.Thread(target=self._reap, name="transload-start", daemon=True)
        self._reaper.start()

    def ask(self, message: bytes) -> bytes:
        """Give it a request, and return its answer, or b"" if it ends without one.

        Raises:
            SchedulerUnavailable: if it does not answer. It is dead then.
        """
        try:
            deadline = time.monotonic() + _ANSWER_S
            _send(self.requests, message, deadline)
            return _receive(self.answers, deadline)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # with what it has forked
            _await_end(self.answers)
            raise
        finally:
            self.leave()

    def leave(self) -> None:
        """Close its pipes. One that has no request ends."""
        os.close(self.requests)
        os.close(self.answers)
        self._reaper.join()

    def _reap(self) -> None:
        """Wait for its first process, so that none is left of it here."""
        with contextlib.suppress(ChildProcessError):  # a program that ignores SIGCHLD
            os.waitpid(self.pid, 0)


class _Ahead:
    """Starts keepers ahead of the next submits, once a process submits several in a row."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._latest = -_ROW_S
        self._in_a_row = 0  # submits before this one, each within a moment of the next

    def ask(self, program: Program, home: str, message: bytes) -> bytes:
        """Give the request to a keeper, and return its answer."""
        now = time.monotonic()
        self._in_a_row = self._in_a_row + 1 if now - self._latest < _ROW_S else 0
        self._latest = now
        place = _place(program, home)
        ready = self._take(place)
        keeper = ready or _spawn(program, home, [], place)
        wanted = 0 if place is None else min(self._in_a_row, _MOST_AHEAD)
        with contextlib.suppress(SubmitError):
            while len(self._waiting) < wanted:
                self._waiting.append(_spawn(program, home, [], place, waits=_ROW_S))
        answer = keeper.ask(message)
        if ready and not answer:  # it had just given up waiting
            answer = _spawn(program, home, [], place).ask(message)
        return answer

    def _take(self, place: object) -> _Waiting | None:
        """Return the keeper that waits longest, or None. Those from another place end."""
        while self._waiting:
            try:
                waiting = self._waiting.pop(0)
            except IndexError:  # another thread was faster
                return None
            if waiting.place == place:
                return waiting
            waiting.leave()
        return None


_AHEAD: Final = _Ahead()


def start(program: Program, home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Start a keeper, give it a request, and return its answer.

    After an exception nothing is started any more, and what was started is dead.

    Args:
        program: of the keeper.
        home: folder of the scheduler.
        request: what its keepers take.

    Raises:
        SubmitError: if no keeper can be started, or it ends without an answer.
        SchedulerUnavailable: if it does not answer.
    """
    message = json.dumps(request).encode() + b"\n"
    scoped = scope.command()
    data = b""
    if scoped:
        with contextlib.suppress(SubmitError):  # the manager may refuse
            data = _spawn(program, home, scoped, None).ask(message)
    data = data or _AHEAD.ask(program, home, message)
    if not data:
        raise SubmitError(
            f"the keeper of the job ended without an answer: see {home}/keepers.log",
            transient=True,
        )
    found: dict[str, Any] = layout.loads(data)
    return found


def notify_start(program: Program, home: str, request: dict[str, Any]) -> None:
    """Start a keeper and give it a request, without waiting for its answer.

    Raises:
        SubmitError: if no keeper can be started.
    """
    keeper = _spawn(program, home, [], None)
    try:
        message = json.dumps(request).encode() + b"\n"
        _send(keeper.requests, message, time.monotonic() + _ANSWER_S)
    finally:
        keeper.leave()


def _place(program: Program, home: str) -> object:
    """Return what a keeper takes over from this process, or None where that cannot be asked."""
    try:
        with open("/proc/self/status", "rb") as file:
            umask = file.read().partition(b"\nUmask:")[2].partition(b"\n")[0]
        with open("/proc/self/limits", "rb") as file:
            limits = file.read()
        with open("/proc/self/cgroup", "rb") as file:
            groups = file.read()
    except OSError:
        return None
    cores = os.sched_getaffinity(0)
    return (os.getpid(), home, program, umask, limits, groups, os.nice(0), cores)


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


def _spawn(
    program: Program, home: str, scoped: list[str], place: object, waits: float = _ANSWER_S
) -> _Waiting:
    """Start a program that becomes a keeper, in a session of its own.

    It inherits the limits and the control group.

    Args:
        program: what becomes one.
        home: folder of the scheduler.
        scoped: what is put in front of it.
        place: what it takes over from this process.
        waits: the seconds after which it ends without a request.
    """
    python = sys.executable or getattr(sys, "_base_executable", "")
    env = dict(program.variables)
    if scoped:
        env["XDG_RUNTIME_DIR"] = scope.runtime_folder()
    code = f"{program.module}.main({home!r}, {waits!r})"
    argv = [*scoped, python, *program.options, "-c", code]
    log = f"{home}/keepers.log"
    handled = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    theirs, requests = os.pipe()
    answers, answer = os.pipe()
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs, 0),
                (os.POSIX_SPAWN_DUP2, answer, 1),
                (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=handled,
        )
    except OSError as exc:
        os.close(requests)
        os.close(answers)
        raise SubmitError(
            f"cannot start a keeper ({python!r}, log {log}): {exc.strerror}", transient=True
        ) from exc
    finally:
        os.close(theirs)
        os.close(answer)
    return _Waiting(pid, requests, answers, place)
