"""The uv of an image starts a role's program with the packages that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SpecError
from transload.runner import Job, Launch, Runner
from transload.schedulers.environments import uv_here
from transload.specs import AppDef, AppState, Role
from transload_testing.packages import PackageIndex, package_index

IMAGE = "registry.example/shell:1"
PRINT = "import tiny; print(tiny.VERSION)"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index with one package, which wants a password. The pods' image has uv."""
    (tmp_path / "index").mkdir()
    with package_index(tmp_path / "index", "reader", "letmein") as made:
        made.add("tiny", "1.0")
        made.be_the_only_one(monkeypatch)
        yield made


def _launch(index: PackageIndex, folder: Path, wanted: str, **fields: Any) -> Launch:
    """Return what runs a program with packages."""
    file = folder / "requirements.txt"
    file.write_text(f"{wanted}\n")
    (folder / "word").write_text("letmein")
    role = Role("main", IMAGE, entrypoint="python", args=["-c", PRINT])
    role.env = {"UV_INDEX": f"own={index.url}", "UV_INDEX_OWN_USERNAME": "reader"}
    role.secrets = {"UV_INDEX_OWN_PASSWORD": f"file:{folder / 'word'}"}
    for name, value in fields.items():
        setattr(role, name, value)
    cfg = {"jobset": "never"}
    app = AppDef("packages", [role])
    return Launch(app=app, scheduler="kubernetes", cfg=cfg, environment=str(file))


def _run(runner: Runner, launch: Launch) -> Job:
    return runner.job(runner.run(launch))


@pytest.fixture
def with_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake pods find uv on PATH."""
    import os

    monkeypatch.setenv("PATH", f"{Path(uv_here()).parent}:{os.environ['PATH']}")


def test_a_program_finds_its_packages(
    fake: Any, with_uv: None, runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """It has them, and the password of the index is a reference in all that is on the cluster."""
    job = _run(runner, _launch(index, tmp_path, "tiny==1.0"))
    status = job.wait(timeout=100)
    lines = [line.rstrip() for line in job.logs("main", 0)]
    assert status.state is AppState.SUCCEEDED, lines
    assert "1.0" in lines
    assert "letmein" not in str([*fake.cluster.items("jobs"), *fake.cluster.items("pods")])


def test_packages_that_do_not_exist(
    fake: Any, with_uv: None, runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """The job fails, with uv's words in its log."""
    job = _run(runner, _launch(index, tmp_path, "tiny==2.0"))
    assert job.wait(timeout=100).state is AppState.FAILED
    assert any("tiny==2.0" in line for line in job.logs("main", 0))


def test_an_image_without_uv(
    fake: Any, runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """The log has the line of a Dockerfile that puts it there, and the exit code is 127."""
    env = {"PATH": "/usr/bin:/bin"}
    job = _run(runner, _launch(index, tmp_path, "tiny==1.0", env=env))
    status = job.wait(timeout=60)
    assert status.roles[0].replicas[0].exit_code == 127
    assert any("COPY --from=" in line for line in job.logs("main", 0))


def test_a_submit_names_the_line_of_the_dockerfile(
    fake: Any,
    with_uv: None,
    runner: Runner,
    index: PackageIndex,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever submits reads what the image needs."""
    with caplog.at_level("INFO", "transload"):
        _run(runner, _launch(index, tmp_path, "tiny==1.0")).wait(timeout=100)
    assert "COPY --from=" in caplog.text


def test_a_role_without_an_image(runner: Runner, index: PackageIndex, tmp_path: Path) -> None:
    """It runs in a public image that has uv."""
    plan = _launch(index, tmp_path, "tiny==1.0", image="").plan(runner)
    assert "astral-sh/uv" in str(plan)


def test_what_is_too_long_to_travel(runner: Runner, index: PackageIndex, tmp_path: Path) -> None:
    """It is refused by its size before anything starts."""
    with pytest.raises(SpecError, match="300,000"):
        _launch(index, tmp_path, "\n".join(f"tiny=={n}" for n in range(50_000))).plan(runner)
