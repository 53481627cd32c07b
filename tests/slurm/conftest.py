"""A cluster of three nodes per test process, started when the first test wants it, gone at the
end.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, Role
from transload_slurm import SlurmScheduler, create_slurm


def _load(name: str) -> ModuleType:
    """Load a neighbour by its path, since the folders below ``tests`` are no packages."""
    full = f"transload_slurm_test_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


cluster_module = _load("cluster")
login_module = _load("login")
outside_module = _load("outside")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, so that none of them is alone at the end."""
    items.sort(key=lambda item: item.path.stem not in ("test_elsewhere", "test_cuts"))


@pytest.fixture
def eventually(eventually: Callable[..., Any]) -> Callable[..., Any]:
    """`eventually` with longer pauses, as most conditions ask Slurm by a process."""
    return functools.partial(eventually, longest_pause=0.2)


@pytest.fixture(scope="session")
def cluster_of_three(needs_slurm: None) -> Iterator[object]:
    """Start the cluster itself. Tests take ``cluster``."""
    made = cluster_module.Cluster()
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def accounting_cluster(
    needs_slurm: None, needs_slurmdbd: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[object]:
    """A cluster of the test's own that keeps a database, no other record, and forgets jobs soon."""
    made = cluster_module.Cluster(accounting=True, MinJobAge="2", JobCompType="jobcomp/none")
    try:
        made.start()
        monkeypatch.setenv("SLURM_CONF", str(made.conf))
        monkeypatch.setenv("PATH", made.env["PATH"])
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def preempting_cluster_itself(needs_slurm: None) -> Iterator[object]:
    """The cluster of tests that take ``preempting_cluster``."""
    low = "Nodes=node[1-3] State=UP PriorityTier=1 PreemptMode=REQUEUE"
    made = cluster_module.Cluster(
        partitions=[
            f"PartitionName=low {low}",
            f"PartitionName=graceful {low} GraceTime=20",
            f"PartitionName=cancelling {low[: -len('REQUEUE')]}CANCEL GraceTime=20",
            "PartitionName=high Nodes=node[1-3] State=UP PriorityTier=10 PreemptMode=OFF",
        ],
        PreemptType="preempt/partition_prio",
        PreemptMode="REQUEUE",
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def preempting_cluster(
    preempting_cluster_itself: object, monkeypatch: pytest.MonkeyPatch
) -> Iterator[object]:
    """A cluster on which jobs of partition ``high`` take the nodes of those of ``low``, and of
    ``graceful`` and ``cancelling`` after 20 s of grace.
    """
    made = preempting_cluster_itself
    assert isinstance(made, cluster_module.Cluster)
    monkeypatch.setenv("SLURM_CONF", str(made.conf))
    monkeypatch.setenv("PATH", made.env["PATH"])
    yield made
    for node in cluster_module.NODES:
        if node not in made.processes:
            made.start_node(node)


@pytest.fixture
def patient_cluster(needs_slurm: None) -> Iterator[object]:
    """A cluster of the test's own, with the time between SIGTERM and SIGKILL that Slurm has by
    default.
    """
    made = cluster_module.Cluster(KillWait="30")
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def uneven_cluster(needs_slurm: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """A cluster of the test's own, whose node2 lacks the plugin for PMI that the others have."""
    made = cluster_module.Cluster(MessageTimeout="3")
    try:
        made.start()
        made.kill("node2")
        made.start_node("node2", without="mpi_pmi2.so")
        monkeypatch.setenv("SLURM_CONF", str(made.conf))
        monkeypatch.setenv("PATH", made.env["PATH"])
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(cluster_of_three: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Return the cluster, set in the environment of this process.

    Its controller is up afterwards.
    """
    made = cluster_of_three
    assert isinstance(made, cluster_module.Cluster)
    monkeypatch.setenv("SLURM_CONF", str(made.conf))
    monkeypatch.setenv("PATH", made.env["PATH"])
    yield made
    if "slurmctld" not in made.processes:
        made.start_controller()


@contextlib.contextmanager
def _login(cluster: object, address: str = "127.0.0.1") -> Iterator[object]:
    assert isinstance(cluster, cluster_module.Cluster)
    base = Path(tempfile.mkdtemp(prefix="tlsh-", dir="/tmp"))
    made = login_module.Login(base, {**cluster.env, "SLURM_CONF": str(cluster.conf)}, address)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(base)


@pytest.fixture(scope="session")
def login_of_three(needs_sshd: None, cluster_of_three: object) -> Iterator[object]:
    """Start the login node itself. Tests take ``login``."""
    with _login(cluster_of_three) as made:
        yield made


@pytest.fixture
def login_at(needs_sshd: None, cluster: object) -> Iterator[Callable[[str], object]]:
    """Start one more login node, which listens at an address, by ``login_at("10.0.0.1")``."""
    with contextlib.ExitStack() as stack:
        yield lambda address: stack.enter_context(_login(cluster, address))


@pytest.fixture
def outside() -> Iterator[object]:
    """A place from which this machine is reached by the network alone."""
    why = outside_module.missing()
    if why is not None:
        pytest.skip(f"not run: {why}")
    with contextlib.closing(outside_module.Outside()) as made:
        yield made


@pytest.fixture
def login(
    login_of_three: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, transload_home: Path
) -> Iterator[object]:
    """Start a login node without Slurm's tools for this process, which reaches it by ssh."""
    made = login_of_three
    assert isinstance(made, login_module.Login)
    for name, value in made.leads.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    folder = tmp_path / "cwd"
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    yield made
    made.hang_up()
    made.remove_sockets()
    made.let_in()


@pytest.fixture
def far(login: object) -> Iterator[Runner]:
    """Make a runner on the cluster behind the login node. Its jobs are ended after the test."""

    def make(session: str, name: str = "slurm") -> SlurmScheduler:
        scheduler = create_slurm(session, name)
        scheduler.connect(scheduler.connection(ssh="login"))
        return scheduler

    with Runner("tests", {"slurm": make}) as made:
        yield made
        for row in made.list("slurm"):
            made.delete(row.app_handle)


@pytest.fixture
def slurm_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own in which jobs have theirs."""
    folder = tmp_path / "slurm"
    monkeypatch.setenv("TRANSLOAD_SLURM_DIR", str(folder))
    return folder / "apps"


@pytest.fixture
def runner(
    cluster: object,
    slurm_dir: Path,
    transload_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Runner]:
    """A runner whose apps are all ended when the test is over, in an empty current directory."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with Runner("tests") as made:
        yield made
        for row in made.list("slurm"):
            made.delete(row.app_handle)


@pytest.fixture
def shell_app() -> Callable[..., AppDef]:
    """Return a job of one role ``main`` that runs a line of shell, by ``shell_app("exit 3")``."""

    def make(command: str, *, timeout: float | None = None, **fields: Any) -> AppDef:
        role = Role("main", "/tmp", entrypoint="sh", args=["-c", command], **fields)
        return AppDef("test", [role], timeout=timeout)

    return make
