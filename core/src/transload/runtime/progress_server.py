"""Answer the protocol by which a training posts its progress, and start the training.

Hugging Face's Trainer (transformers 5) posts to ``KUBEFLOW_TRAINER_SERVER_URL`` if that is set,
with a bearer token from the file that ``KUBEFLOW_TRAINER_SERVER_TOKEN`` names. The server is a
process of its own on the loopback interface. The training keeps the process that the scheduler has
started, so signals reach it. This file needs only the standard library and Python 3.8.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO

__all__ = ["Account", "Posted", "served", "status_of"]

ENV_URL = "KUBEFLOW_TRAINER_SERVER_URL"
ENV_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable
ENV_CERTIFICATE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
STATUS = "trainerStatus"
PERCENTAGE = "progressPercentage"
SECONDS_LEFT = "estimatedRemainingSeconds"
METRICS = "metrics"
STEP = "current_step"
TOTAL = "total_steps"
EPOCH = "current_epoch"
"""The names of the protocol."""

PROGRESS_FILE = "TRANSLOAD_PROGRESS_FILE"
HOST = "127.0.0.1"
_LARGEST_BODY = 1 << 18
_LOOK_S = 1.0
"""Seconds between two looks whether the training is still there."""
_READ_S = 5.0
_MOST_METRICS = 100
_NAME = 200  # characters of a metric's name
_MOST_LINES = 10_000  # a curve of so many points grows half as fast from then on
_FASTER = 3.0  # so much faster than before may the last steps have been
_COUNTS = {"attempt": "TRANSLOAD_RETRY", "interruptions": "TRANSLOAD_INTERRUPTIONS"}
_IGNORED = ("TERM", "INT", "HUP", "USR1", "USR2", "QUIT", "ALRM")
"""Signals to the whole group of processes are for the training."""


def served(executable: str, argv: Sequence[str]) -> list[str]:
    """Return the arguments with which Python starts a program beside a server for its progress.

    Args:
        executable: the program, as a path or a name to be found on ``PATH``.
        argv: what the program gets as its arguments, its own name first.
    """
    with open(__file__, encoding="utf-8") as file:
        return ["-I", "-c", file.read(), executable, *argv]


class Posted:
    """What a training has posted last.

    Args:
        status: the ``trainerStatus`` of a request.
    """

    def __init__(self, status: Mapping[str, Any]) -> None:
        self.percentage = _number(status.get(PERCENTAGE))
        self.seconds_left = _number(status.get(SECONDS_LEFT))
        self.numbers: dict[str, float] = {}
        self.words: list[str] = []
        metrics = status.get(METRICS)
        if not isinstance(metrics, list):
            metrics = []
        for metric in metrics[:_MOST_METRICS]:
            self._take(metric)
        self.step = self.numbers.pop(STEP, None)
        self.total = self.numbers.pop(TOTAL, None)
        self.epoch = self.numbers.pop(EPOCH, None)
        if self.epoch is not None:
            self.words.append(f"epoch {self.epoch:g}")

    def _take(self, metric: object) -> None:
        if not isinstance(metric, dict):
            return
        name = metric.get("name")
        value = metric.get("value")
        if not isinstance(name, str) or not isinstance(value, str) or not 0 < len(name) <= _NAME:
            return
        try:
            number = float(value)
        except ValueError:
            self.words.append(f"{name} {value}")
            return
        if number.is_integer():
            number = int(number)
        self.numbers[name] = number
        if name not in (STEP, TOTAL, EPOCH, "epoch"):
            self.words.append(f"{name} {number:.4g}")

    def line(self) -> dict[str, Any]:
        """Return the line for the progress file that it means."""
        line: dict[str, Any] = {}
        if self.step is not None:
            line["step"] = self.step
        if self.total is not None:
            line["total"] = self.total
        has_part = self.step is not None and self.total is not None
        if self.percentage is not None and not has_part:  # it is whole percents
            line["fraction"] = self.percentage / 100
        if self.seconds_left is not None:
            line["eta_seconds"] = self.seconds_left
        if self.words:
            line["text"] = ", ".join(self.words)
        return line


def status_of(body: bytes) -> Posted | None:
    """Return the report in the body of a request, or None if it is no status."""
    try:
        posted = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(posted, dict) or not isinstance(posted.get(STATUS), dict):
        return None
    return Posted(posted[STATUS])


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


class Account:
    """The reports of a training until now.

    Trainer reports 100 % whenever it stops, also after a notice. So the end is believed only if the
    missing steps fit into the time since the last report of a step.
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None  # when it said which step
        self._last: tuple[float, float] | None = None
        self._total: float | None = None

    def line(self, posted: Posted, now: float) -> dict[str, Any]:
        """Return the line for the progress file that a status means.

        Args:
            posted: the status.
            now: the time, in seconds.
        """
        line = posted.line()
        if posted.total is not None:
            self._total = posted.total
        if posted.step is not None:
            self._last = (now, posted.step)
            if self._first is None:
                self._first = self._last
        if posted.percentage != 100 or posted.step is not None or not self._total:
            return line
        step = self._total
        if self._stopped_early(now) and self._last is not None:
            step = self._last[1]
            line.pop("fraction", None)
            line.pop("eta_seconds", None)
        return {**line, "step": step, "total": self._total}

    def _stopped_early(self, now: float) -> bool:
        if self._first is None or self._last is None or self._total is None:
            return False
        seconds = self._last[0] - self._first[0]
        steps = self._last[1] - self._first[1]
        if seconds <= 0 or steps <= 0:
            return False
        left = (self._total - self._last[1]) * seconds / steps
        return left > _FASTER * (now - self._last[0] + 1.0)


class Results:
    """The numbers that a training posts, as results of its replica and points of their curves.

    They are written as ``docs/reference/results-format.md`` says, beside what the program itself
    reports. Of a job whose results go to a URL they stay in the progress.

    Args:
        environment: the variables of the training.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = environment.get("TRANSLOAD_TRACKER_BASE", "")
        role = environment.get("TRANSLOAD_ROLE", "")
        self._key = environment.get("TRANSLOAD_REPLICA_ID", "0")
        self._writer = {
            "role": role,
            "replica": _count(environment, "TRANSLOAD_REPLICA_ID"),
            "attempt": _count(environment, "TRANSLOAD_RETRY"),
        }
        if "," in environment.get("TRANSLOAD_ROLES", ""):
            self._key = f"{role}/{self._key}"
        self._run = environment.get("TRANSLOAD_JOB_ID", "")
        self._attempt: dict[str, int] = {}
        for name, variable in _COUNTS.items():
            if _count(environment, variable):
                self._attempt[name] = _count(environment, variable)
        self._known: dict[str, float] = {}
        self._lines = 0

    def add(self, posted: Posted) -> None:
        """Write what is new in a status. A metric that keeps its value was not measured again."""
        if not self._folder.startswith("/") or not self._run:
            return
        new = {name: value for name, value in posted.numbers.items() if self._is_new(name, value)}
        if not new:
            return
        self._known.update(new)
        os.makedirs(self._folder, exist_ok=True)
        base = os.path.join(self._folder, quote(self._key, safe=""))
        _update(base + ".json", lambda before: self._body(before, new))
        self._lines += 1
        every = 1 + self._lines // _MOST_LINES
        if posted.step is not None and self._lines % every == 0:
            line = {"schema": 1, "step": posted.step, "results": new, **self._attempt}
            _append(base + ".steps.jsonl", json.dumps(line).encode() + b"\n")

    def _is_new(self, name: str, value: float) -> bool:
        return repr(self._known.get(name)) != repr(value)  # NaN is no news twice

    def _body(self, before: bytes, new: Mapping[str, float]) -> bytes:
        """Return the file of results with new ones, and those that the training has reported."""
        owner = {"run": self._run, "writer": self._writer}
        results: dict[str, Any] = {}
        try:
            body = json.loads(before)
            if {name: body.get(name) for name in owner} == owner:
                results = dict(body["results"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # there is none, or it is somebody else's
        results.update(new)
        return json.dumps({"schema": 1, "key": self._key, "results": results, **owner}).encode()


def _count(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdigit():
        return 0
    return int(text)


def _update(path: str, change: Callable[[bytes], bytes]) -> None:
    """Replace a file by what ``change`` makes of its content. Other processes that do so wait."""
    aside = f"{path}.{os.getpid()}.posted"
    try:
        while True:
            if not os.path.lexists(path):
                _write(aside, change(b""))
                try:
                    os.link(aside, path)
                    return
                except FileExistsError:
                    continue
            with open(path, "rb") as file:
                _lock(file)
                is_there = os.path.lexists(path) and os.path.samestat(
                    os.fstat(file.fileno()), os.lstat(path)
                )
                if is_there:
                    _write(aside, change(file.read()))
                    os.replace(aside, path)
                    return
    finally:
        if os.path.lexists(aside):
            os.unlink(aside)


def _append(path: str, line: bytes) -> None:
    """Add a line to a file, behind whole lines."""
    with open(path, "ab+") as file:
        _lock(file)
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":  # of a writer that was killed
            line = b"\n" + line
        file.write(line)


def _lock(file: IO[bytes]) -> None:
    """Lock a file against others who write it, where the file system has locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        pass  # a report must not be lost for want of a lock


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


class Handler(BaseHTTPRequestHandler):
    """Takes one status. The path of the request does not matter."""

    timeout = _READ_S
    server: Server

    def do_POST(self) -> None:
        """Write the progress that is posted into the progress file."""
        given = self.headers.get("Authorization") or ""
        expected = "Bearer " + self.server.token
        if not hmac.compare_digest(given.encode(), expected.encode()):
            self._answer(401)
            return
        length = self.headers.get("Content-Length") or ""
        if not length.isdigit():
            self._answer(411)
            return
        if int(length) > _LARGEST_BODY:
            self._answer(413)
            return
        posted = status_of(self.rfile.read(int(length)))
        if posted is None:
            self._answer(400)
            return
        self.server.note(posted)  # before the answer, since the training may end after it
        self._answer(200)

    def _answer(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing, since the log is the training's."""


class Server(HTTPServer):
    """Listens on a free port of the loopback interface.

    Args:
        progress_file: where the progress is written.
        token: what must be in each request.
    """

    timeout = _LOOK_S

    def __init__(self, progress_file: str, token: str) -> None:
        self.token = token
        self._progress_file = progress_file
        self._account = Account()
        self._results = Results(os.environ)
        super().__init__((HOST, 0), Handler)

    def server_bind(self) -> None:
        """Bind without asking for the name of the machine, which may take long."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name = HOST
        self.server_port = self.server_address[1]

    def note(self, posted: Posted) -> None:
        """Write what a training says into its progress file, and its numbers into its results."""
        line = self._account.line(posted, time.monotonic())
        _replace(self._progress_file, json.dumps(line))
        try:
            self._results.add(posted)
        except OSError:
            pass  # a full disk costs the numbers, not the training

    def serve(self, training: int) -> None:
        """Answer requests as long as a process is there."""
        while _is_there(training):
            self.handle_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing. A request that breaks off is the sender's concern."""


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _replace(path: str, text: str) -> None:
    """Write a file whole or not at all. A full disk costs the progress, not the training."""
    other = path + ".posted"
    try:
        with open(other, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(other, path)
    except OSError:
        pass


def _write_token(path: str, token: str) -> None:
    if os.path.lexists(path):  # an attempt's before
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)


def serve_beside(progress_file: str) -> dict[str, str]:
    """Start the server in a separate process, and return the variables that lead to it."""
    token = secrets.token_hex(32)
    token_file = progress_file + ".token"
    _write_token(token_file, token)
    server = Server(progress_file, token)
    training = os.getpid()
    child = os.fork()
    if child == 0:
        _be_server(server, training)
    os.waitpid(child, 0)  # it has forked again, so the training has no child of its own
    server.socket.close()
    found = {ENV_URL: f"http://{HOST}:{server.server_port}/", ENV_TOKEN: token_file}
    for name in ("no_proxy", "NO_PROXY"):
        found[name] = ",".join(filter(None, [os.environ.get(name), HOST]))
    return found


def _be_server(server: Server, training: int) -> NoReturn:
    try:
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):  # whoever reads the log waits for its last writer
                os.dup2(nothing, descriptor)
            for name in _IGNORED:
                signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
            server.serve(training)
    finally:
        os._exit(0)


def main(argv: list[str]) -> NoReturn:
    """Start the server, and become the training.

    Args:
        argv: ``EXECUTABLE ARGV0 ARGUMENT …``.
    """
    environment = dict(os.environ)
    environment.pop(ENV_CERTIFICATE, None)
    path = environment.get(PROGRESS_FILE)
    try:
        if path:
            environment.update(serve_beside(path))
    except OSError as exc:
        sys.stderr.write(f"transload: no progress server: {exc}\n")
    sys.stderr.flush()
    try:
        os.execvpe(argv[0], argv[1:], environment)  # noqa: S606 - no shell, as the scheduler does
    except OSError as exc:
        sys.stderr.write(f"transload: cannot run {argv[0]!r}: {exc.strerror}\n")
    os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
