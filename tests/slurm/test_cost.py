"""A cluster behind ssh costs few commands on its login node, and few round trips."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.schedulers import watch
from transload.specs import AppDef, AppState, Resource, Role, Workspace
from transload_slurm import SlurmScheduler, create_slurm
from transload_slurm.wire import Channel

WATCHED = 200
PROCESSES = 10
LARGE = 256  # files of 8 MB
WATCH_S = 120.0
DELAY_S = 0.05


@pytest.fixture
def calls(login: Any) -> Iterator[Path]:
    """A file with a line for each ``squeue`` and ``sacct`` that the login node has run."""
    path: Path = login.tools / "calls"
    path.touch()
    for tool in ("squeue", "sacct"):
        (login.tools / tool).write_text(
            f'#!/bin/sh\necho {tool} >> {path}\nexec /usr/bin/{tool} "$@"\n'
        )
        (login.tools / tool).chmod(0o755)
    yield path
    for tool in ("squeue", "sacct"):
        (login.tools / tool).unlink()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_watched_jobs(
    login: Any, far: Runner, shell_app: Callable[..., AppDef], calls: Path
) -> None:
    """Two hundred watched jobs need one connection, no command by ssh and few questions."""
    scheduler = far.scheduler("slurm")
    assert isinstance(scheduler, SlurmScheduler)
    chatty = shell_app("while :; do date; sleep 0.5; done")
    handles = [far.run(chatty, "slurm") for _ in range(2)]
    handles += [
        far.run(shell_app("true"), "slurm", {"begin": "now+1hour"}) for _ in range(WATCHED - 2)
    ]
    seen: dict[str, AppState] = {}

    def note(observation: Any) -> None:
        if observation.status is not None:
            seen[observation.handle] = observation.status.state

    subscriptions: list[Any] = [watch(scheduler, handle, note) for handle in handles]
    printed: list[str] = []
    readers = [
        threading.Thread(
            target=lambda h=handle: printed.extend(far.log_lines(h, "main", should_tail=True)),
            daemon=True,
        )
        for handle in handles[:2]
    ]
    for reader in readers:
        reader.start()
    time.sleep(10)
    helpers, sessions = login.helpers(), login.sessions()
    calls.write_text("")
    before = len(printed)
    time.sleep(WATCH_S)
    asked = len(calls.read_text().split()) / (WATCH_S / 60)
    print(f"{asked} questions to Slurm a minute; {len(printed) - before} lines")
    assert asked <= 12
    assert (login.helpers(), login.sessions()) == (helpers, sessions)
    assert len(helpers) == 1
    assert len(printed) - before > WATCH_S  # four lines a second are written
    assert set(seen.values()) == {AppState.RUNNING, AppState.PENDING}
    for subscription in subscriptions:
        subscription.close()
    for handle in handles:
        far.cancel(handle)
    for reader in readers:
        reader.join(60)


_WATCHER = """
import sys
from transload.schedulers import watch
from transload.runner import Runner
from transload_slurm import create_slurm
scheduler = create_slurm("watcher")
scheduler.connect(scheduler.connection(ssh="login"))
seen = {}
note = lambda told: seen.update({told.handle: told.status and told.status.state.name})
with Runner("tests", {"slurm": lambda session: scheduler}) as runner:
    watched = [watch(scheduler, handle, note) for handle in sys.argv[1:]]
    for line in sys.stdin:
        print(*(seen.get(handle) for handle in sys.argv[1:]), flush=True)
    for each in watched:
        each.close()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_watched_by_many_processes(
    login: Any,
    far: Runner,
    shell_app: Callable[..., AppDef],
    calls: Path,
    tmp_path: Path,
    eventually: Any,
) -> None:
    """Ten processes that watch 200 jobs ask as much as one, and learn soon of an end."""
    small = Resource(cpu=1, gpu=0, memMB=500)  # all of them fit on three nodes
    ends = shell_app(f"until test -e {tmp_path}/go; do sleep 0.2; done", resource=small)
    handles = [far.run(ends, "slurm") for _ in range(PROCESSES)]
    handles += [
        far.run(shell_app("true"), "slurm", {"begin": "now+1hour"})
        for _ in range(WATCHED - PROCESSES)
    ]
    far.scheduler("slurm").login_node.connection.link().close()  # type: ignore[attr-defined]
    start = [sys.executable, "-c", _WATCHER]
    watchers = [
        subprocess.Popen(
            [*start, *handles[k::PROCESSES]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for k in range(PROCESSES)
    ]

    def told() -> list[list[str]]:
        for each in watchers:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        return [each.stdout.readline().split() for each in watchers if each.stdout is not None]

    try:
        rest = ["PENDING"] * (WATCHED // PROCESSES - 1)
        eventually(lambda: told() == [["RUNNING", *rest]] * PROCESSES, 120)
        helpers = login.helpers()
        masters = [path for path in (login.client / "run").rglob("*") if path.is_socket()]
        calls.write_text("")
        time.sleep(WATCH_S)
        asked = len(calls.read_text().split()) / (WATCH_S / 60)
        print(
            f"{PROCESSES} processes: {asked} questions to Slurm a minute, {len(masters)} "
            "connections"
        )
        assert asked <= 12
        assert (login.helpers(), len(helpers), len(masters)) == (helpers, PROCESSES, 2)
        (tmp_path / "go").touch()
        eventually(lambda: told() == [["SUCCEEDED", *rest]] * PROCESSES, 20)
    finally:
        for each in watchers:
            each.communicate(timeout=60)
    assert [each.returncode for each in watchers] == [0] * PROCESSES


class Slow:
    """A way to the login node on which everything takes its time, each way."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            for a, b in ((near, far), (far, near)):
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                queue: deque[tuple[float, bytes]] = deque()
                arrived = threading.Event()
                threading.Thread(target=self._take, args=(a, queue, arrived), daemon=True).start()
                threading.Thread(target=self._give, args=(b, queue, arrived), daemon=True).start()

    @staticmethod
    def _take(
        source: socket.socket, queue: deque[tuple[float, bytes]], arrived: threading.Event
    ) -> None:
        data = b"x"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            queue.append((time.monotonic() + DELAY_S, data))
            arrived.set()

    @staticmethod
    def _give(
        target: socket.socket, queue: deque[tuple[float, bytes]], arrived: threading.Event
    ) -> None:
        while True:
            arrived.wait()
            arrived.clear()
            while queue:
                due, data = queue.popleft()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    target.close()
                    return
                target.sendall(data)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_large_workspace(
    login: Any, far: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace of 2 GB travels once. When one of its files has changed, only that one does."""
    project = tmp_path / "project"
    project.mkdir()
    for k in range(LARGE):
        (project / f"file-{k}").write_bytes(os.urandom(8 << 20))
    sent = 0
    send = Channel.send

    def counted(self: Channel, message: Any, payload: bytes = b"") -> None:
        nonlocal sent
        sent += len(payload)
        send(self, message, payload)

    monkeypatch.setattr(Channel, "send", counted)
    app = AppDef(
        "ws",
        [
            Role(
                "main",
                "",
                entrypoint="sh",
                args=["-c", "ls"],
                workspace=Workspace({str(project): ""}),
            )
        ],
    )
    told = []
    for _ in range(3):
        start = time.perf_counter()
        handle = far.run(app, "slurm")
        took = time.perf_counter() - start
        status = far.wait(handle, timeout=60)
        assert status is not None and status.state is AppState.SUCCEEDED, status
        assert len(list(far.log_lines(handle, "main"))) == LARGE
        far.delete(handle)
        told.append((sent, round(took, 1)))
        sent = 0
        (project / "file-1").write_bytes(b"changed")
    print(f"bytes sent and seconds: all, one file changed, none: {told}")
    assert [each for each, _ in told] == [LARGE * (8 << 20), len(b"changed"), 0]


@pytest.fixture
def slow_way(login: Any) -> Iterator[str]:
    """The name of the login node by a slow way."""
    way = Slow(login.port)
    config = login.base / "ssh_config"
    kept = config.read_text()
    known = login.base / "known_hosts"
    config.write_text(
        kept
        + kept.replace("Host login", "Host slow").replace(
            str(login.port), f"{way.port}\n    HostKeyAlias slow"
        )
    )
    before = known.read_text()
    known.write_text(before + "slow " + before.partition(" ")[2])
    yield "slow"
    config.write_text(kept)
    known.write_text(before)
    login.hang_up()
    way.close()


@pytest.mark.slow
def test_round_trips_of_a_submit(
    login: Any, slow_way: str, shell_app: Callable[..., AppDef]
) -> None:
    """A submit takes at most two round trips more than ``ssh login sbatch`` on a connection that is
    there.
    """
    scheduler = create_slurm("cost")
    scheduler.connect(scheduler.connection(ssh=slow_way))
    with Runner("tests", {"slurm": lambda session: scheduler}) as runner:
        handles = [runner.run(shell_app("true"), "slurm")]  # opens the connection
        socket_path = next(path for path in (login.client / "run").rglob("*") if path.is_socket())
        bare = [
            "ssh",
            "-S",
            str(socket_path),
            slow_way,
            "sbatch --parsable --wrap=true -o /dev/null",
        ]
        ours, theirs = [], []
        for _ in range(5):
            start = time.perf_counter()
            handles.append(runner.run(shell_app("true"), "slurm"))
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            subprocess.run(bare, check=True, capture_output=True)
            theirs.append(time.perf_counter() - start)
        trips = (statistics.median(ours) - statistics.median(theirs)) / (2 * DELAY_S)
        print(
            f"submit {statistics.median(ours):.3f} s, ssh sbatch {statistics.median(theirs):.3f} "
            f"s: {trips:+.1f} trips"
        )
        assert trips <= 2
        for handle in handles:
            runner.delete(handle)
