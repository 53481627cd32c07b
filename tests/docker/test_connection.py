"""An engine is reached by socket or TCP, and pulls from a registry, or is out of reach."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, SubmitError
from transload.runner import Runner
from transload.specs import AppDef, AppState, Role

_ASKS = """
import gc, sys
from transload.errors import SchedulerUnavailable
from transload_docker.engine import Engine
from transload.schedulers import Changes
from transload_docker.watch import DockerWatch
engine = Engine(sys.argv[1])
for _ in range(3):
    try:
        engine.boxes()
    except SchedulerUnavailable as exc:
        print("unavailable" if "cannot be reached" in str(exc) else exc)
changes = Changes()
watch = DockerWatch(engine, sys.argv[2], changes.add, print)
watch.update(["x"])
changes.wait(0.2), changes.wait(0.2)
watch.close()
engine.close()
del engine, watch
gc.collect()
"""


@pytest.mark.parametrize(
    "url", ["unix://{folder}/nothing", "unix://{folder}/dead", "tcp://127.0.0.1:{port}"]
)
def test_an_engine_that_is_not_there_leaves_no_socket_open(
    tmp_path: Path, free_port: int, url: str
) -> None:
    """Every socket is closed, however often a missing engine is asked."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    command = [sys.executable, "-X", "dev", "-W", "always::ResourceWarning", "-c", _ASKS]
    done = subprocess.run(
        [*command, url.format(folder=tmp_path, port=free_port), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["unavailable"] * 3), done.stderr
    assert "ResourceWarning" not in done.stderr


class Breaking(BaseHTTPRequestHandler):
    """An engine that has no image, and goes away in the middle of a pull."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer with the version, and refuse all else."""
        status, body = (
            (200, b'{"ApiVersion": "1.41"}')
            if self.path == "/version"
            else (404, b'{"message": "no"}')
        )
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Begin to tell of progress."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        line = b'{"status": "Pulling"}\r\n'
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\nff\r\n{")
        self.close_connection = True


def test_an_engine_that_goes_away_during_a_pull() -> None:
    """An engine that goes away during a pull is unavailable, without a library's own error."""
    from transload_docker import images
    from transload_docker.engine import Engine

    server = ThreadingHTTPServer(("127.0.0.1", 0), Breaking)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    engine = Engine(f"tcp://127.0.0.1:{server.server_address[1]}")
    try:
        with pytest.raises(SchedulerUnavailable, match="cannot be reached"):
            images.ensure(engine, "tools:1", "missing")
    finally:
        engine.close()
        server.shutdown()
        server.server_close()
        thread.join(30)


class Relay:
    """Hands on bytes between connections to a port of this machine and a socket, as an engine's TCP
    listener would.

    Args:
        path: the socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._links: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                self._links += [near, far]
                far.connect(self._path)
                self._start(self._pump, near, far)
                self._start(self._pump, far, near)

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Cut everything, wait for the threads."""
        for link in (self._listener, *self._links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        for link in (self._listener, *self._links):
            link.close()


@pytest.fixture
def over_tcp(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The engine at a TCP address, which DOCKER_HOST names."""
    relay = Relay(str(engine.socket))
    monkeypatch.setenv("DOCKER_HOST", relay.url)
    yield relay.url
    relay.close()


def test_an_engine_over_tcp(engine: Any, over_tcp: str, shell: Any, tmp_path: Path) -> None:
    """Submit, watch, follow, cancel and delete work over the network, and so do results."""
    from transload_docker.scheduler import create_docker

    with Runner("tests", {"docker": create_docker}) as runner:
        assert runner.scheduler("docker").reach == "network"
        handle = runner.run(shell("echo one; sleep 1; echo two", replicas=2), "docker")
        assert list(runner.log_lines(handle, "main", 1, should_tail=True)) == ["one\n", "two\n"]
        status = runner.wait(handle, timeout=60)
        assert status is not None and status.state is AppState.SUCCEEDED
        assert runner.scheduler("docker").results_folder("x", {}) is None
        held = runner.run(shell("sleep 300"), "docker")
        runner.cancel(held)
        status = runner.wait(held, timeout=60)
        assert status is not None and status.state is AppState.CANCELLED
        for each in (handle, held):
            runner.delete(each)


@pytest.fixture(scope="module")
def registry(needs_registry: None, private_engine: Any) -> str:
    """Name of an image that is in a registry, and not on the engine."""
    import docker  # noqa: TID251 - the tests of the plugin may

    private_engine.start_registry()
    name = f"{private_engine.registry}/tools/shell:1"
    private_engine.busybox_image(name)
    api = docker.APIClient(base_url=private_engine.url)
    api.push(name)
    api.inspect_distribution(name)
    api.remove_image(name, force=True)
    api.close()
    return name


def test_an_image_comes_from_a_registry(engine: Any, registry: str, runner: Runner) -> None:
    """``never`` refuses what the engine lacks, ``missing`` pulls it, ``always`` takes what was
    pushed meanwhile.
    """
    app = AppDef("x", [Role("r", registry, entrypoint="cat", args=["/version"])])
    with pytest.raises(SubmitError, match="pull=never"):
        runner.run(app, "docker")
    app.roles[0].entrypoint, app.roles[0].args = "echo", ["pulled"]
    handle = runner.run(app, "docker", {"pull": "missing"})
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    before = engine.client.inspect_image(registry)["Id"]
    repository, _, tag = registry.rpartition(":")
    made = engine.client.create_container_from_config({"Image": registry, "Cmd": ["sh"]})["Id"]
    engine.client.commit(made, repository=repository, tag=tag, changes=["LABEL newer=yes"])
    engine.client.remove_container(made)
    newer = engine.client.inspect_image(registry)["Id"]
    engine.client.push(registry)
    engine.client.tag(before, repository, tag, force=True)
    runner.wait(runner.run(app, "docker", {"pull": "missing"}), timeout=60)
    assert engine.client.inspect_image(registry)["Id"] == before
    runner.wait(runner.run(app, "docker", {"pull": "always"}), timeout=60)
    assert engine.client.inspect_image(registry)["Id"] == newer
