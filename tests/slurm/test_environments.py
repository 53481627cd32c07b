"""Jobs of a cluster get their packages from uv, which lies beside them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SubmitError, UnsupportedFeature
from transload.runner import Job, Launch, Runner
from transload.specs import AppDef, AppState, Role
from transload_testing.packages import PackageIndex, package_index

PRINT = "import tiny; print(tiny.VERSION)"
CONTENT = "requirements.txt"
HERE_AND_THERE = pytest.mark.parametrize(
    "scheduler", ["slurm", pytest.param("hpc", marks=pytest.mark.engine("sshd"))]
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index with the package ``tiny``."""
    with package_index(tmp_path / "index") as served:
        served.add("tiny", "1.0")
        served.be_the_only_one(monkeypatch)
        yield served


@pytest.fixture
def hpc(login: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the jobs of ``hpc``, a cluster in the settings, behind the login node."""
    folder = tmp_path / "hpc"
    settings = tmp_path / "transload.toml"
    settings.write_text(
        f'[schedulers.hpc]\nkind = "slurm"\nssh = "login"\nfolder = "{folder}"\n', encoding="utf-8"
    )
    monkeypatch.setenv("TRANSLOAD_CONFIG", str(settings))
    return folder


@pytest.fixture
def afar(hpc: Path) -> Iterator[Runner]:
    """A runner whose jobs on ``hpc`` are all ended when the test is over."""
    with Runner("tests") as made:
        yield made
        for row in made.list("hpc"):
            made.delete(row.app_handle)


@pytest.fixture
def place(
    scheduler: str, needs_slurm: None, index: PackageIndex, request: pytest.FixtureRequest
) -> tuple[Runner, Path]:
    """The runner of a scheduler, and the folder beside its jobs. A file here names ``tiny``."""
    names = {"slurm": ("runner", "slurm_dir"), "hpc": ("afar", "hpc")}[scheduler]
    runner, folder = [request.getfixturevalue(name) for name in names]
    Path(CONTENT).write_text("tiny\n", encoding="utf-8")
    return runner, folder.parent if scheduler == "slurm" else folder


def submit(runner: Runner, index: PackageIndex, scheduler: str, *command: str, **cfg: Any) -> Job:
    """Submit a command that runs with what the file names."""
    program, *args = command or ("python3", "-c", PRINT)
    env = {name: value for name, value in index.variables().items() if name != "UV_CACHE_DIR"}
    role = Role("main", "/tmp", entrypoint=program, args=args, env=env)
    launch = Launch(app=AppDef("test", [role]), scheduler=scheduler, environment=CONTENT, cfg=cfg)
    return launch.plan(runner).submit()


def output_of(job: Job) -> list[str]:
    """Wait until a job has succeeded, and return its log, without what uv says of its installing."""
    status = job.wait(90)
    lines = [line.rstrip() for line in job.logs("main", 0)]
    assert status.state is AppState.SUCCEEDED, (status, lines)
    return [line for line in lines if not line.startswith("Installed ")]


@HERE_AND_THERE
def test_uv_is_copied_once_beside_the_jobs(
    scheduler: str, place: tuple[Runner, Path], index: PackageIndex
) -> None:
    """The program finds its package. The next job copies nothing and fetches no package."""
    runner, folder = place
    assert output_of(submit(runner, index, scheduler)) == ["1.0"]
    wheels = [path for path in index.requests if path.endswith(".whl")]
    (uv,) = folder.glob(".packages/uv-*")
    made = uv.stat().st_ino
    assert output_of(submit(runner, index, scheduler)) == ["1.0"]
    assert uv.stat().st_ino == made
    assert [path for path in index.requests if path.endswith(".whl")] == wheels
    assert len(list(folder.glob(".packages/*.txt"))) == 1


@HERE_AND_THERE
def test_packages_that_the_login_node_fetches(
    scheduler: str, place: tuple[Runner, Path], index: PackageIndex
) -> None:
    """A job whose packages were fetched before asks for nothing more."""
    runner, _ = place
    job = submit(runner, index, scheduler, prefetch=True)
    asked = list(index.requests)
    assert any(path.endswith(".whl") for path in asked)
    assert output_of(job) == ["1.0"]
    assert index.requests == asked


@HERE_AND_THERE
def test_packages_that_cannot_be_fetched_before(
    scheduler: str, place: tuple[Runner, Path], index: PackageIndex
) -> None:
    """Nothing is submitted, and the message has uv's last lines."""
    runner, _ = place
    Path(CONTENT).write_text("absent\n", encoding="utf-8")
    with pytest.raises(SubmitError, match="absent"):
        submit(runner, index, scheduler, prefetch=True)
    assert runner.list(scheduler) == []


@pytest.mark.parametrize("scheduler", ["slurm"])
@pytest.mark.parametrize(
    ("script", "code"), [("exit 75", 75), ("kill -SEGV $$", -signal.SIGSEGV)], ids=str
)
def test_a_job_ends_as_its_program_does(
    scheduler: str, place: tuple[Runner, Path], index: PackageIndex, script: str, code: int
) -> None:
    """Its exit code, or the signal that has ended it, is the replica's."""
    runner, _ = place
    status = submit(runner, index, scheduler, "sh", "-c", script).wait(90)
    assert status.state is AppState.FAILED
    assert status.roles[0].replicas[0].exit_code == code


@pytest.mark.parametrize("scheduler", ["slurm"])
def test_a_cancelled_job(scheduler: str, place: tuple[Runner, Path], index: PackageIndex) -> None:
    """The program gets the signal, from Slurm and from uv, and the job is CANCELLED."""
    runner, _ = place
    text = (
        "import signal, time, tiny\n"
        "signal.signal(15, lambda *_: (print('asked to end', flush=True), time.sleep(0.5)))\n"
        "print('here', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    job = submit(runner, index, scheduler, "python", "-c", text)
    assert next(job.logs("main", 0, regex="here")).rstrip() == "here"
    job.cancel()
    assert job.wait(60).state is AppState.CANCELLED
    assert "asked to end" in "".join(job.logs("main", 0))


@pytest.mark.parametrize("scheduler", ["slurm"])
def test_not_inside_of_a_container(
    scheduler: str, place: tuple[Runner, Path], index: PackageIndex
) -> None:
    """A role that runs in an image is refused by the name of the field."""
    runner, _ = place
    role = Role("main", "docker://python:3.11", entrypoint="true")
    launch = Launch(
        app=AppDef("test", [role]),
        scheduler="slurm",
        environment=CONTENT,
        cfg={"container": "apptainer"},
    )
    with pytest.raises(UnsupportedFeature) as caught:
        launch.plan(runner)
    assert caught.value.field == "roles[0].environment"
    assert index.requests == []
