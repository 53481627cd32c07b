"""Answers the protocol by which a training posts its progress, and starts the training.

Hugging Face's Trainer (transformers 5) posts to ``KUBEFLOW_TRAINER_SERVER_URL`` if that is set, with
a bearer token from the file that ``KUBEFLOW_TRAINER_SERVER_TOKEN`` names. The server is a process of
its own on the loopback interface; the training keeps the process that the scheduler has started, so
signals reach it. Standard library only, Python 3.8.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["progress_of", "served"]

ENV_URL = "KUBEFLOW_TRAINER_SERVER_URL"
ENV_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable
ENV_CERTIFICATE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
STATUS = "trainerStatus"
PERCENTAGE = "progressPercentage"
SECONDS_LEFT = "estimatedRemainingSeconds"
METRICS = "metrics"
"""The names of the protocol."""

PROGRESS_FILE = "TRANSLOAD_PROGRESS_FILE"
HOST = "127.0.0.1"
_LARGEST_BODY = 1 << 18
_LOOK_S = 1.0
"""Seconds between two looks whether the training is still there."""
_READ_S = 5.0
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


def progress_of(body: bytes) -> dict[str, Any] | None:
    """Return the line for the progress file that a posted status means; None: it means none."""
    try:
        posted = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(posted, dict):
        return None
    status = posted.get(STATUS)
    if not isinstance(status, dict):
        return None
    line: dict[str, Any] = {}
    percentage = _number(status.get(PERCENTAGE))
    if percentage is not None:
        line["fraction"] = percentage / 100
    seconds = _number(status.get(SECONDS_LEFT))
    if seconds is not None:
        line["eta_seconds"] = seconds
    metrics = status.get(METRICS)
    if isinstance(metrics, list):
        texts = [_metric_text(metric) for metric in metrics]
        line["text"] = ", ".join(text for text in texts if text)
    return line


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


def _metric_text(metric: object) -> str:
    if not isinstance(metric, dict):
        return ""
    name = metric.get("name")
    value = metric.get("value")
    if not isinstance(name, str) or not isinstance(value, str):
        return ""
    return f"{name} {value}"


class Handler(BaseHTTPRequestHandler):
    """Takes one status; the path of the request does not matter."""

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
        line = progress_of(self.rfile.read(int(length)))
        if line is None:
            self._answer(400)
            return
        _replace(self.server.progress_file, json.dumps(line))
        self._answer(200)

    def _answer(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the log is the training's."""


class Server(HTTPServer):
    """Listens on a free port of the loopback interface.

    Args:
        progress_file: where the progress is written.
        token: what must be in each request.
    """

    timeout = _LOOK_S

    def __init__(self, progress_file: str, token: str) -> None:
        self.progress_file = progress_file
        self.token = token
        super().__init__((HOST, 0), Handler)

    def server_bind(self) -> None:
        """Bind without asking for the name of the machine, which may take long."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name = HOST
        self.server_port = self.server_address[1]

    def serve(self, training: int) -> None:
        """Answer requests as long as a process is there."""
        while _is_there(training):
            self.handle_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing: a request that breaks off is the sender's."""


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _replace(path: str, text: str) -> None:
    """Write a file whole or not at all; a full disk costs the progress, not the training."""
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
    """Start the server in a process of its own; return the variables that lead to it."""
    token = secrets.token_hex(32)
    token_file = progress_file + ".token"
    _write_token(token_file, token)
    server = Server(progress_file, token)
    training = os.getpid()
    child = os.fork()
    if child == 0:
        _be_server(server, training)
    os.waitpid(child, 0)  # it has forked again: the training has no child that it did not start
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
    """Start the server, and become the training: ``EXECUTABLE ARGV0 ARGUMENT …``."""
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
