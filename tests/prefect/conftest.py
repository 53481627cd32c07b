"""A real Prefect server for all tests of a session, read back through its REST API."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "INFO",
    "PREFECT_CLI_COLORS": "false",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "0.5",  # tests wait for lines
}


_HOME = tempfile.mkdtemp(prefix="tl-prefect-")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PORT = _free_port()
# Prefect reads its settings once, when it is imported: a test may do so before any wants the server
os.environ.update(QUIET, PREFECT_HOME=_HOME, PREFECT_API_URL=f"http://127.0.0.1:{PORT}/api")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)


class Api:
    """Reads back what the server knows.

    Args:
        url: of the API.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the server answers.

        While it is too busy, ask again, as Prefect's own clients do.
        """
        deadline = time.monotonic() + 60
        while True:
            answer = httpx.request(method, self.url + path, json=body, timeout=60)
            if (
                answer.status_code != 503 or time.monotonic() > deadline
            ):  # 503: SQLite was locked, nothing was done
                break
            time.sleep(0.2)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def get(self, path: str) -> Any:
        """Return an object."""
        return self.ask("GET", path)

    def post(self, path: str, **body: Any) -> Any:
        """Return what a filter finds, or what an action answers."""
        return self.ask("POST", path, body)

    def patch(self, path: str, **body: Any) -> None:
        """Change an object."""
        self.ask("PATCH", path, body)

    def flow_run(self, flow_run_id: Any) -> dict[str, Any]:
        """Return a flow run."""
        found: dict[str, Any] = self.get(f"/flow_runs/{flow_run_id}")
        return found

    def task_runs(self, flow_run_id: Any) -> list[dict[str, Any]]:
        """Return the task runs of a flow run."""
        found: list[dict[str, Any]] = self.post(
            "/task_runs/filter", flow_runs={"id": {"any_": [str(flow_run_id)]}}
        )
        return found

    def logs(self, flow_run_id: Any) -> list[dict[str, Any]]:
        """Return the log lines of a flow run, oldest first."""
        found: list[dict[str, Any]] = self.post(
            "/logs/filter",
            logs={"flow_run_id": {"any_": [str(flow_run_id)]}},
            sort="TIMESTAMP_ASC",
            limit=200,
        )
        return found

    def artifacts(self, flow_run_id: Any) -> list[dict[str, Any]]:
        """Return the artifacts of a flow run."""
        found: list[dict[str, Any]] = self.post(
            "/artifacts/filter", artifacts={"flow_run_id": {"any_": [str(flow_run_id)]}}
        )
        return found

    def events(self, resource: str) -> list[dict[str, Any]]:
        """Return the events about a resource."""
        found = self.post("/events/filter", filter={"resource": {"id": [resource]}}, limit=50)
        return list(found["events"])

    def cancel(self, flow_run_id: Any) -> None:
        """Cancel a flow run, as the interface does."""
        self.post(
            f"/flow_runs/{flow_run_id}/set_state",
            state={"type": "CANCELLING", "name": "Cancelling"},
        )


@pytest.fixture(scope="session")
def api() -> Iterator[Api]:
    """Start a Prefect server on SQLite for each process of the session, and set it for clients."""
    log = Path(_HOME, "server.log")
    with open(log, "wb") as file:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "prefect",
                "server",
                "start",
                "--host",
                "127.0.0.1",
                "--port",
                str(PORT),
                "--no-ui",
            ],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    found = Api(os.environ["PREFECT_API_URL"])
    try:
        deadline = time.monotonic() + 300
        while True:
            try:
                found.get("/health")
                break
            except httpx.HTTPError:
                if server.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"no Prefect server: {log.read_text()[-2000:]}")
                time.sleep(0.1)
        yield found
        _drain()
    finally:
        _end(server)


def drained() -> None:
    """Have the adapter's threads do all that is due, now or later, as when the process ends."""
    from transload_prefect import background

    background._stop()
    background._pid = 0  # who asks from here on gets new ones


@pytest.fixture
def drain() -> Callable[[], None]:
    """See `drained`."""
    return drained


def _drain() -> None:
    """Have Prefect's own senders end while there is a server, or they try for a minute."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    drained()
    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=10)


def _end(process: subprocess.Popen[Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue


@pytest.fixture
def host(api: Api, transload_home: Path) -> Iterator[Api]:
    """Return the server, with a fresh transload home, and wait for what the adapter has to send."""
    yield api
    drained()


class Script:
    """A flow in a process of its own.

    Args:
        body: Python source, in which ``jobs``, ``prefect`` and ``transload_prefect`` can be
            imported.
        folder: where it is written.
    """

    def __init__(self, body: str, folder: Path) -> None:
        self.path = folder / "script.py"
        self.path.write_text(body)
        self.log = folder / "script.log"
        self._processes: list[subprocess.Popen[Any]] = []

    def start(self, *words: str, **environment: str) -> subprocess.Popen[Any]:
        """Start it with arguments and environment variables."""
        command = (
            words if words[:1] == (sys.executable,) else (sys.executable, str(self.path), *words)
        )
        path = os.pathsep.join([str(Path(__file__).parent), *(each for each in sys.path if each)])
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": path, **environment},
                cwd=self.path.parent,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End all of its processes."""
        for process in self._processes:
            _end(process)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[[str], Script]]:
    """Write a flow to be run in a process of its own, by ``script(body)``."""
    made: list[Script] = []

    def make(body: str) -> Script:
        made.append(Script(body, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def gate() -> Iterator[Path]:
    """Return a file that does not exist, for which jobs wait."""
    with tempfile.TemporaryDirectory(prefix="tl-gate-") as folder:
        yield Path(folder) / "gate"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of Prefect. Those of our own code still fail a test."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            # Prefect leaves connections of ended event loops to the garbage collector: a later test
            # may be the one to meet them, also one that does not talk to the host itself
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
