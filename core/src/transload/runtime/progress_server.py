"""Take the progress that a training posts, and start the training.

Hugging Face's Trainer (transformers 5) posts to ``KUBEFLOW_TRAINER_SERVER_URL`` if that is set,
with a bearer token from the file that ``KUBEFLOW_TRAINER_SERVER_TOKEN`` names. The server is a
process of its own on the loopback interface. The training keeps the process that the scheduler has
started, so signals reach it. Its Python needs no transload: `served` hands over this file and
`transload.runtime`.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import signal
import socketserver
import sys
from http.server import BaseHTTPRequestHandler
from typing import Any, NoReturn

from transload import runtime

__all__ = ["served"]

_START = """
import sys, types
package = sys.modules["transload"] = types.ModuleType("transload")
package.runtime = sys.modules["transload.runtime"] = types.ModuleType("transload.runtime")
exec(sys.argv.pop(1), package.runtime.__dict__)
exec(sys.argv.pop(1))
main(sys.argv[1:])
"""
_LARGEST_BODY = 1 << 18
_IGNORED = ("TERM", "INT", "HUP", "USR1", "USR2", "QUIT", "ALRM")
"""Signals to the whole group of processes are for the training."""


def served(executable: str, argv: list[str]) -> list[str]:
    """Return the arguments with which Python starts a program beside a server for its progress.

    Args:
        executable: the program, as a path or a name to be found on ``PATH``.
        argv: what the program gets as its arguments, its own name first.
    """
    sources = []
    for path in (runtime.__file__, __file__):
        with open(path, encoding="utf-8") as file:
            sources.append(file.read())
    return ["-I", "-c", _START, *sources, executable, *argv]


class Training:
    """What a training has posted until now, written as its progress and its results."""

    def __init__(self, progress_file: str) -> None:
        self._progress = runtime.ProgressWriter(progress_file)
        place = runtime.place_of_job()  # what goes to a URL stays in the progress
        self._reports = runtime.Reports(place) if isinstance(place, runtime.Folder) else None
        self._at: dict[str, Any] = {}  # the latest step, and the number of all
        self._known: dict[str, str] = {}

    def note(self, status: dict[str, Any]) -> None:
        """Write what a ``trainerStatus`` says. What is of another kind is left out."""
        metrics = status.get("metrics")
        numbers: dict[str, Any] = {}
        words = []
        for metric in metrics[:100] if isinstance(metrics, list) else []:
            name, value = (str(part)[:200] for part in (metric["name"], metric["value"]))
            try:
                numbers[name] = float(value)
            except ValueError:
                words.append(f"{name} {value}")
        at = {"step": numbers.pop("current_step", None), "total": numbers.pop("total_steps", None)}
        epoch = numbers.pop("current_epoch", None)
        words += [f"{name} {value:.4g}" for name, value in numbers.items() if name != "epoch"]
        if epoch is not None:
            words.append(f"epoch {epoch:g}")
        percentage = status.get("progressPercentage")
        fraction = None
        if at["step"] is not None:
            self._at = at
        elif percentage == 100 and self._at:
            at = self._at  # Trainer says so whenever it stops, after a notice too
        elif percentage is not None:
            fraction = float(percentage) / 100
        self._progress.add(**at, fraction=fraction, text=", ".join(words))
        self._progress.flush()
        # a metric that keeps its value was not measured again
        new = {
            name: value for name, value in numbers.items() if self._known.get(name) != str(value)
        }
        self._known.update({name: str(value) for name, value in new.items()})
        if self._reports is not None and new:
            self._reports.add(runtime.check_results(new), at["step"])


class Handler(BaseHTTPRequestHandler):
    """Takes one status. The path of the request does not matter."""

    timeout = 5.0
    server: Server

    def do_POST(self) -> None:
        """Write the progress that is posted, before the answer, since the training may end then."""
        given = self.headers.get("Authorization") or ""
        length = self.headers.get("Content-Length") or ""
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            return self._answer(401)
        if not length.isdigit() or int(length) > _LARGEST_BODY:
            return self._answer(413)
        try:
            status = json.loads(self.rfile.read(int(length)))["trainerStatus"]
            with contextlib.suppress(OSError):  # a full disk costs the numbers, not the training
                self.server.training.note(dict(status))
        except (ValueError, TypeError, KeyError, RecursionError):
            return self._answer(400)
        return self._answer(200)

    def _answer(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing, since the log is the training's."""


class Server(socketserver.TCPServer):
    """Listens on a free port of the loopback interface, for a token that is in each request."""

    timeout = 1.0

    def __init__(self, progress_file: str) -> None:
        self.token = secrets.token_hex(32)
        self.training = Training(progress_file)
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing. A request that breaks off is the sender's concern."""

    def serve(self, training: int) -> None:
        """Answer requests as long as a process is there."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):  # whoever reads the log waits for its last writer
            os.dup2(nothing, descriptor)
        for name in _IGNORED:
            signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
        while _is_there(training):
            self.handle_request()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def serve_beside(progress_file: str) -> dict[str, str]:
    """Start the server in a separate process, and return the variables that lead to it."""
    server = Server(progress_file)
    token_file = progress_file + ".token"
    runtime.write_file(token_file, server.token.encode(), 0o600)
    training = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                server.serve(training)
        finally:
            os._exit(0)
    os.waitpid(child, 0)  # it has forked again, so the training has no child of its own
    server.socket.close()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    found = {"KUBEFLOW_TRAINER_SERVER_URL": url, "KUBEFLOW_TRAINER_SERVER_TOKEN": token_file}
    for name in ("no_proxy", "NO_PROXY"):
        found[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1"]))
    return found


def main(argv: list[str]) -> NoReturn:
    """Start the server, and become the training: ``EXECUTABLE ARGV0 ARGUMENT …``."""
    environment = dict(os.environ)
    environment.pop("KUBEFLOW_TRAINER_SERVER_CA_CERT", None)
    path = environment.get(runtime.ENV_PROGRESS_FILE)
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
