"""The digits example works without a launcher, piece by piece, and in three processes."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("sklearn")

FOLDER = Path(__file__).parents[3] / "examples" / "digits"
Finished = list[tuple[int, str, str]]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a module of the example the way its scripts do, and forget it afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in ("checkpoints", "group", "model", "training"):
        sys.modules.pop(name, None)


def train(
    base: Path, app_id: str, *options: str, replicas: int = 3, script: str = "trainer.py"
) -> Finished:
    """Run all replicas as processes, the last rank first.

    Return (exit code, stdout, stderr) by rank.
    """
    env = os.environ | {
        "MY_RANK0": "localhost",
        "OMP_NUM_THREADS": "1",
        "TRANSLOAD_TRACKER_BASE": str(base),
    }
    common = [
        "--replicas",
        str(replicas),
        "--app-id",
        app_id,
        "--rank0-env",
        "MY_RANK0",
        "--timeout",
        "30",
        *options,
    ]
    started = [
        subprocess.Popen(
            [sys.executable, str(FOLDER / script), "--rank", str(rank), *common],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in reversed(range(replicas))
    ]
    try:
        texts = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [(process.returncode, *text) for process, text in zip(started, texts, strict=True)][::-1]


def read(base: Path, key: str) -> dict[str, Any]:
    """Return what was reported under a key."""
    body = json.loads((base / f"{key}.json").read_text())
    assert body["schema"] == 1 and body["key"] == key
    results: dict[str, Any] = body["results"]
    return results


def test_one_replica_needs_nobody(tmp_path: Path) -> None:
    """A single replica opens no port and trains alone, with a key of the user's."""
    finished = train(tmp_path, "app-one", "--epochs", "2", "--result-key", "7", replicas=1)
    assert finished[0][0] == 0, finished
    assert set(read(tmp_path, "7")) == {"accuracy", "loss", "seconds"}


def test_peer_without_rank0_env_says_so(tmp_path: Path) -> None:
    """The variable's name is in the message, and the exit code is that of a mistake."""
    env = {name: value for name, value in os.environ.items() if name != "MY_RANK0"}
    options = ["--rank", "1", "--replicas", "2", "--app-id", "x", "--rank0-env", "MY_RANK0"]
    command = [sys.executable, str(FOLDER / "trainer.py"), *options]
    result = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2
    assert result.stderr.strip() == "rank 1: MY_RANK0 is not set: where is rank 0?"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rank", "3", "--replicas", "3"], "--rank 3: must be 0 or more and below --replicas 3"),
        (["--rank", "0", "--replicas", "1", "--epochs", "0"], "--epochs 0: must be 1 or more"),
        (["--rank", "0", "--replicas", "1", "--port", "70000"], "--port 70000: must be 0 to 65535"),
    ],
)
def test_mistakes_are_refused_in_one_line(
    load: Callable[[str], ModuleType],
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    """A wrong argument ends the program before it does anything, with exit code 2."""
    with pytest.raises(SystemExit, match="2"):
        load("training").parse([*options, "--app-id", "x", "--rank0-env", "Y"])
    assert message in capsys.readouterr().err


def test_lone_rank_gives_up_after_the_timeout(
    load: Callable[[str], ModuleType], free_port: int
) -> None:
    """Both sides name whom they missed and where."""
    group = load("group")
    with pytest.raises(
        group.GroupError, match=rf"rank 0 on port {free_port} waited in vain for ranks \[1, 2\]"
    ):
        group.Group.join(0, 3, "localhost", "x", free_port, timeout=0.1)
    with pytest.raises(
        group.GroupError,
        match=rf"rank 1 found no rank 0 of app 'x' at localhost, ports \[{free_port}\]",
    ):
        group.Group.join(1, 3, "localhost", "x", free_port, timeout=0.1)


def test_ports_follow_from_the_app_id_alone(load: Callable[[str], ModuleType]) -> None:
    """Sixteen different ports lie below the kernel's own range. A given port is the only one."""
    ports = load("group").candidate_ports("some-app")
    assert ports == load("group").candidate_ports("some-app")
    assert len(set(ports)) == 16 and all(20_000 <= port < 32_000 for port in ports)
    assert ports != load("group").candidate_ports("some-other-app")
    assert load("group").candidate_ports("some-app", 1234) == [1234]


def _join_all(group: ModuleType, world: int, app_id: str, port: int = 0) -> list[Any]:
    """Let all ranks of a job join from threads, and return the groups by rank."""
    with ThreadPoolExecutor(world) as pool:
        joining = [
            pool.submit(group.Group.join, rank, world, "localhost", app_id, port, 20)
            for rank in range(world)
        ]
        return [each.result(timeout=30) for each in joining]


def test_apps_that_want_the_same_ports_do_not_mix(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three jobs with the same candidate ports at the same time each find their own peers."""
    group = load("group")
    shared = group.candidate_ports(f"shared-{os.getpid()}")
    monkeypatch.setattr(group, "candidate_ports", lambda app_id, port=0: shared)
    with ThreadPoolExecutor(3) as pool:
        apps = list(pool.map(lambda name: _join_all(group, 3, name), ["one", "two", "three"]))
    with ThreadPoolExecutor(9) as pool:
        sums = [
            [pool.submit(each.sum, np.array([float(10**n)])) for each in app]
            for n, app in enumerate(apps)
        ]
        values = [[float(each.result(timeout=20)[0]) for each in app] for app in sums]
    for app in apps:
        for each in app:
            each.close()
    assert values == [[3.0] * 3, [30.0] * 3, [300.0] * 3]


def test_stranger_on_the_first_port_is_passed_over(load: Callable[[str], ModuleType]) -> None:
    """If a server that is not ours holds the first candidate, the job takes the next."""
    group = load("group")
    app_id = f"stranger-{os.getpid()}"
    first = group.candidate_ports(app_id)[0]
    with socket.create_server(("127.0.0.1", first)) as stranger:
        stranger.settimeout(0.1)
        done = threading.Event()

        def answer() -> None:
            while not done.is_set():
                try:
                    link, _ = stranger.accept()
                except TimeoutError:
                    continue
                link.sendall(b"220 mail.example ESMTP\r\n")
                link.close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            for each in _join_all(group, 2, app_id):
                each.close()
        finally:
            done.set()
            thread.join()


def test_intruder_is_not_admitted(load: Callable[[str], ModuleType], free_port: int) -> None:
    """A greeting that is noise or of a wrong job or rank gets no answer, and the real peer does."""
    group = load("group")
    with ThreadPoolExecutor(2) as pool:
        root = pool.submit(group.Group.join, 0, 2, "localhost", "x", free_port, 20)
        for greeting in (
            b"\0" * 2000,
            b'{"app": "y", "rank": 1, "world": 2}\n',
            b'{"app": "x", "rank": 5, "world": 2}\n',
        ):
            with _connect(free_port) as intruder:
                intruder.sendall(greeting)
                assert _rest(intruder) == b""
        peer = pool.submit(group.Group.join, 1, 2, "localhost", "x", free_port, 20)
        for each in (root, peer):
            each.result(timeout=20).close()


def _connect(port: int) -> socket.socket:
    """Connect as soon as somebody listens."""
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
    raise AssertionError(f"nobody listens on port {port}")


def _rest(link: socket.socket) -> bytes:
    """Read until the other side closes the connection, by a reset too."""
    try:
        return link.recv(100)
    except ConnectionResetError:
        return b""


def test_lost_peer_is_named(load: Callable[[str], ModuleType], free_port: int) -> None:
    """When a replica dies, the others end with a message instead of waiting for ever."""
    group = load("group")
    root, peer = _join_all(group, 2, "x", free_port)
    peer.close()
    with root, pytest.raises(group.GroupError, match="rank 0 lost rank 1"):
        root.sum(np.zeros(3))


def test_sum_is_taken_in_rank_order(load: Callable[[str], ModuleType], free_port: int) -> None:
    """Numbers whose sum depends on the order come out as if added rank by rank, on every replica
    alike.
    """
    group = load("group")
    parts = [1e16, 1.0, -1e16, 1.0]
    groups = _join_all(group, 4, "x", free_port)
    with ThreadPoolExecutor(4) as pool:
        sums = list(
            pool.map(
                lambda pair: float(pair[0].sum(np.array([pair[1]]))[0]),
                zip(groups, parts, strict=True),
            )
        )
    for each in groups:
        each.close()
    assert sums == [((1e16 + 1.0) - 1e16) + 1.0] * 4


def test_gradient_agrees_with_differences(load: Callable[[str], ModuleType]) -> None:
    """The gradient is the slope of the summed loss, checked numerically for each parameter."""
    model = load("model")
    network = model.Network(hidden=5, seed=3)
    shard = model.load_shard(0, 100, 3)
    gradient = network.gradient(shard.train_x, shard.train_y)
    for index in (0, 200, 64 * 5 + 2, 64 * 5 + 5 + 7, -1):
        losses = []
        for step in (1e-5, -1e-5):
            network.parameters[index] += step
            losses.append(network.score(shard.train_x, shard.train_y)[0])
            network.parameters[index] -= step
        assert gradient[index] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4, abs=1e-6)


def test_shards_are_a_partition(load: Callable[[str], ModuleType]) -> None:
    """All replicas together hold each picture once, and no held-out picture is trained on."""
    model = load("model")
    shards = [model.load_shard(rank, 3, 0) for rank in range(3)]
    assert sum(len(shard.train_y) for shard in shards) == 1438
    assert sum(len(shard.test_y) for shard in shards) == 359
    pictures = np.concatenate([part for shard in shards for part in (shard.train_x, shard.test_x)])
    whole = model.load_shard(0, 1, 0)
    everything = np.concatenate([whole.train_x, whole.test_x])
    assert sorted(map(bytes, pictures)) == sorted(map(bytes, everything))


@pytest.mark.timeout(200)
@pytest.mark.slow
def test_a_training_goes_on_after_a_notice(tmp_path: Path, eventually: Any) -> None:
    """Both replicas stop after the same epoch when one has its notice, and are started again.

    They end with what an undisturbed training ends with, to the last bit.
    """
    given = ["--replicas", "2", "--rank0-env", "MY_RANK0", "--app-id", "notice", "--epochs", "4"]
    env = os.environ | {"MY_RANK0": "localhost", "OMP_NUM_THREADS": "1"}

    def start(rank: int, folder: Path) -> subprocess.Popen[str]:
        folder.mkdir(exist_ok=True)
        return subprocess.Popen(
            [sys.executable, str(FOLDER / "trainer.py"), "--rank", str(rank), *given],
            env=env | {"TRANSLOAD_CHECKPOINT_DIR": str(folder)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def listens(pid: int) -> bool:
        """Tell whether a process has a handler for SIGTERM."""
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def run(folder: Path, *, noticed: bool = False) -> tuple[list[int], str]:
        with start(1, folder) as other:
            if noticed:  # while it waits for the first one, so that it comes before the end
                eventually(lambda: listens(other.pid), 60)
                other.send_signal(signal.SIGTERM)
            with start(0, folder) as first:
                try:
                    shown, _ = first.communicate(timeout=90)
                    return [first.wait(), other.wait(timeout=60)], shown
                finally:
                    first.kill()
                    other.kill()

    codes, shown = run(tmp_path / "disturbed", noticed=True)
    assert codes == [75, 75]
    assert "epoch   1/4" in shown
    assert "epoch   2/4" not in shown
    codes, shown = run(tmp_path / "disturbed")
    assert codes == [0, 0]
    assert "goes on after epoch 1\n" in shown
    assert run(tmp_path / "undisturbed")[0] == [0, 0]
    saved = [np.load(tmp_path / name / "digits.npz") for name in ("disturbed", "undisturbed")]
    assert [int(each["epoch"]) for each in saved] == [4, 4]
    assert saved[0]["parameters"].tobytes() == saved[1]["parameters"].tobytes()


def test_trainer_imports_no_transload() -> None:
    """No module of the launched program mentions an import of transload."""
    for name in ("trainer.py", "training.py", "checkpoints.py", "model.py", "group.py"):
        text = (FOLDER / name).read_text()
        assert "import transload" not in text and "from transload" not in text, name
