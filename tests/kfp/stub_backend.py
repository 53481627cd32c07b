"""Stand in for the v2beta1 REST API of Kubeflow Pipelines, with runs that a test moves.

It is no backend: nothing runs, and only what the client parts use is there (create, get, list,
terminate, health).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TIME = "2026-01-02T03:04:05Z"
NEVER = "1970-01-01T00:00:00Z"


class StubBackend:
    """The runs, and the server that shows them."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.failures: list[int] = []
        self.calls: list[tuple[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.host = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def put(
        self, run_id: str, state: str | None, tasks: list[dict[str, Any]] | None = None, **more: Any
    ) -> None:
        """Show a run."""
        run = {
            "run_id": run_id,
            "display_name": "a run",
            "experiment_id": "e",
            "created_at": TIME,
            **more,
        }
        if state is not None:
            run["state"] = state
        if tasks is not None:
            run["run_details"] = {"task_details": tasks}
        self.runs[run_id] = run

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and body of an answer."""
        parts = unquote(urlsplit(path).path).strip("/").split("/")
        self.calls.append((method, "/".join(parts)))
        if parts[:2] != ["apis", "v2beta1"]:
            return 404, {"message": path}
        if parts[2:] == ["healthz"]:
            return 200, {"multi_user": False}
        if self.failures:
            return self.failures.pop(0), {"message": "not now"}
        if parts[2:] == ["runs"] and method == "POST":
            run_id = f"run-{len(self.runs)}"
            self.put(
                run_id,
                "PENDING",
                display_name=body.get("display_name", ""),
                runtime_config=body.get("runtime_config"),
            )
            return 200, self.runs[run_id]
        if parts[2:] == ["runs"]:
            return 200, {"runs": list(self.runs.values()), "total_size": len(self.runs)}
        run_id, _, action = parts[3].partition(":") if len(parts) == 4 else ("", "", "")
        if run_id not in self.runs:
            return 404, {"message": f"run {run_id} not found"}
        if action == "terminate":
            self.runs[run_id]["state"] = "CANCELING"
            return 200, {}
        return 200, self.runs[run_id]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}") if length else {}
                status, answer = backend.answer(self.command, self.path, body)
                data = json.dumps(answer).encode()
                with suppress(ConnectionError):  # a client that waited long enough has gone
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _serve

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


@contextmanager
def stub_backend() -> Iterator[StubBackend]:
    """A stub for the length of a ``with``."""
    backend = StubBackend()
    try:
        yield backend
    finally:
        backend.close()


def task(name: str, state: str, **more: Any) -> dict[str, Any]:
    """Return a task as the contract has it."""
    return {
        "run_id": "r",
        "task_id": more.pop("task_id", name),
        "display_name": name,
        "state": state,
        "create_time": TIME,
        "start_time": TIME,
        "end_time": NEVER if state in ("PENDING", "RUNNING") else TIME,
        **more,
    }
