"""A training of two hosts with a crash and a retry, wherever replicas run.

No two jobs of a host meet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppState

pytest.importorskip("torch")

_SYSTEM = {"/usr": "/usr", "/usr/bin": "/bin", "/usr/lib": "/lib", "/usr/lib64": "/lib64"}
TRAIN = """
import os
import signal
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("world", int(total.item()), flush=True)
if os.environ["RANK"] == "0" and os.environ["TRANSLOAD_RETRY"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(total)
print("sum", int(total.item()), flush=True)
dist.destroy_process_group()
"""


@dataclass
class Place:
    """Where a job runs, and what it needs there.

    Attributes:
        scheduler: its scheduler.
        cfg: run options.
        image: what its replicas run in, or "" for none.
        folders: folder of this machine → where the job sees it.
    """

    scheduler: str
    cfg: dict[str, Any] = field(default_factory=dict)
    image: str = ""
    folders: dict[str, str] = field(default_factory=dict)

    def arguments(self, read_only: bool = True) -> list[str]:
        """Return what `dist.ddp` is given so that its replicas find torch, and each other's ports
        are their own.
        """
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        found = ["--env", f"PATH={path},OMP_NUM_THREADS=1,LOGLEVEL=ERROR"]
        found += ["--image", self.image] if self.image else []
        flag = ",readonly" if read_only else ""
        mounts = [
            f"type=bind,src={source},dst={target}{flag}" for source, target in self.folders.items()
        ]
        return [*found, "--mounts", ",".join(mounts)] if mounts else found


def of_this_machine() -> dict[str, str]:
    """Return the folders that hold this Python, torch and a shell."""
    return {**_SYSTEM, sys.prefix: sys.prefix, sys.base_prefix: sys.base_prefix}


@pytest.fixture
def runner(transload_home: Path) -> Iterator[Runner]:
    """A runner whose jobs are gone when the test is over."""
    with Runner("tests") as made:
        handles: list[str] = []
        submit = made.run_component

        def noted(*args: Any, **kwargs: Any) -> str:
            handles.append(submit(*args, **kwargs))
            return handles[-1]

        made.run_component = noted  # type: ignore[method-assign]
        yield made
        for handle in handles:
            made.delete(handle)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The training."""
    path = tmp_path / "job" / "train.py"
    path.parent.mkdir()
    path.write_text(TRAIN, encoding="utf-8")
    return path


@pytest.fixture
def place(request: pytest.FixtureRequest, script: Path) -> Place:
    """The place of that name."""
    make: dict[str, Callable[[], Place]] = {
        "local": lambda: Place("local"),
        "slurm": lambda: _slurm(request),
        "ssh": lambda: _ssh(request),
        "charliecloud": lambda: _charliecloud(request, script),
        "docker": lambda: _docker(request, script),
    }
    made: Place = make[request.param]()
    return made


def _slurm(request: pytest.FixtureRequest) -> Place:
    request.getfixturevalue("cluster")
    return Place("slurm", {"nodes": 2, "ntasks_per_node": 1})


def _ssh(request: pytest.FixtureRequest) -> Place:
    request.getfixturevalue("login")
    monkeypatch = request.getfixturevalue("monkeypatch")
    settings = request.getfixturevalue("tmp_path") / "transload.toml"
    settings.write_text('[schedulers.hpc]\nkind = "slurm"\nssh = "login"\n', encoding="utf-8")
    monkeypatch.setenv("TRANSLOAD_CONFIG", str(settings))
    return Place("hpc", {"nodes": 2, "ntasks_per_node": 1})


def _charliecloud(request: pytest.FixtureRequest, script: Path) -> Place:
    request.getfixturevalue("cluster")
    image = request.getfixturevalue("empty_image")
    folders = {**of_this_machine(), str(script.parent): str(script.parent)}
    return Place("slurm", {"container": "charliecloud"}, image, folders)


def _docker(request: pytest.FixtureRequest, script: Path) -> Place:
    engine = request.getfixturevalue("private_engine")
    request.getfixturevalue("monkeypatch").setenv("DOCKER_HOST", engine.url)
    folders = {**of_this_machine(), str(script.parent): str(script.parent)}
    return Place("docker", {}, engine.busybox_image(), folders)


def _param(name: str, *engines: str, slow: bool = True) -> Any:
    marks = [pytest.mark.engine(*engines)] if engines else []
    return pytest.param(name, marks=[*marks, pytest.mark.slow] if slow else marks)


PLACES = [
    _param("local", slow=False),
    _param("slurm", "slurm"),
    _param("ssh", "slurm", "sshd"),
    _param("charliecloud", "slurm", "charliecloud"),
    _param("docker", "docker"),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_crash_is_named_and_the_retry_trains(place: Place, runner: Runner, script: Path) -> None:
    """Two hosts meet without a given port.

    The error names a killed rank 0, and the retry succeeds.
    """
    shape = ["-j", "2x1", "--cpu", "1", "--memMB", "900", "--max_retries", "1"]
    own = place.arguments(read_only=place.cfg.get("container") != "charliecloud")
    arguments = ["--script", str(script), *shape, *own]
    handle = runner.run_component("dist.ddp", arguments, place.scheduler, place.cfg)
    status = runner.wait(handle, timeout=240)
    logs = [list(runner.log_lines(handle, "train", k)) for k in range(2)]
    lines = [line.partition("]:")[2] or line for log in logs for line in log]
    reports = [line for line in lines if "exitcode  : -9" in line]
    assert status is not None and status.state is AppState.SUCCEEDED, f"{status}\n{''.join(lines)}"
    assert [status.roles[0].replicas[k].restarts for k in range(2)] == [1, 1]
    assert lines.count("sum 4\n") == 2
    assert reports


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_two_jobs_of_a_host_do_not_meet(runner: Runner, tmp_path: Path) -> None:
    """Each has a port of its own, below those that the system hands out, and ends as if it were
    alone.
    """
    script = tmp_path / "meet.py"
    source = "import os, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    source += "print('endpoint', open('/proc/%d/cmdline' % os.getppid()).read().split('\\0'), flush=True)\n"
    script.write_text(source + "dist.barrier()\ndist.destroy_process_group()\n", encoding="utf-8")
    place = Place("local")

    def run(_: int) -> str:
        arguments = ["--script", str(script), "-j", "2x1", "--cpu", "1", *place.arguments()]
        handle = runner.run_component("dist.ddp", arguments, "local")
        status = runner.wait(handle, timeout=240)
        assert status is not None and status.state is AppState.SUCCEEDED, status
        ports = set(re.findall(r"localhost:(\d+)", "".join(runner.log_lines(handle, "meet", 1))))
        assert len(ports) == 1
        return ports.pop()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert first != second
    assert all(20000 <= int(port) < 30000 for port in (first, second))
