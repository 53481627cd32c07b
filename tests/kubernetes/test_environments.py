"""Each pod installs the packages of its role before its program starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import SubmitError
from transload.runner import Job, Launch, Runner
from transload.specs import AppDef, AppState, Environment, Role
from transload_kubernetes import environments
from transload_kubernetes.convert import convert
from transload_testing.packages import PackageIndex, package_index

IMAGE = "registry.example/shell:1"
PRINT = "import os, sys, tiny; print(tiny.VERSION, sys.prefix == os.environ['VIRTUAL_ENV'])"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An index with one package, which wants a password."""
    (tmp_path / "index").mkdir()
    with package_index(tmp_path / "index", "reader", "letmein") as made:
        made.add("tiny", "1.0")
        made.be_the_only_one(monkeypatch)
        yield made


def _run(
    runner: Runner, index: PackageIndex, folder: Path, wanted: str, **fields: Any
) -> tuple[Job, str]:
    """Run a program with packages. Return its job, and the address of the index in its file."""
    address = index.url.replace("//", "//reader:${INDEX_WORD}@")
    file = folder / "requirements.txt"
    file.write_text(f"--index-url {address}\n{wanted}\n")
    (folder / "word").write_text("letmein")
    role = Role("main", IMAGE, entrypoint="python", args=["-c", PRINT])
    role.secrets = {"INDEX_WORD": f"file:{folder / 'word'}", "OTHER": f"file:{folder / 'word'}"}
    for name, value in fields.items():
        setattr(role, name, value)
    launch = Launch(
        app=AppDef("packages", [role]),
        scheduler="kubernetes",
        cfg={"jobset": "never"},
        environment=str(file),
    )
    return runner.job(runner.run(launch)), address


def test_a_pod_installs_what_its_program_imports(
    fake: Any, runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """The program finds its packages, and the password of the index is a reference in all that is
    on the cluster.
    """
    job, _ = _run(runner, index, tmp_path, "tiny==1.0")
    status = job.wait(timeout=100)
    assert status.state is AppState.SUCCEEDED, status
    assert list(job.logs()) == ["1.0 True\n"] or "1.0 True" in "".join(map(str, job.logs()))
    (made,) = fake.cluster.items("jobs")
    (making,) = made["spec"]["template"]["spec"]["initContainers"]
    assert [each["name"] for each in making["env"]] == ["INDEX_WORD"]
    assert "valueFrom" in making["env"][0]
    assert "letmein" not in str([*fake.cluster.items("jobs"), *fake.cluster.items("configmaps")])


def test_packages_that_do_not_exist(
    fake: Any, runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """The installer's last lines are the reason why the job has failed, and no retry is spent."""
    job, _ = _run(runner, index, tmp_path, "tiny==2.0", max_retries=3)
    status = job.wait(timeout=100)
    assert status.state is AppState.FAILED
    assert status.num_restarts == 0
    assert "requirements.txt" in status.msg and "cannot be made" in status.msg
    assert "tiny==2.0" in str(status.roles[0].replicas[0].structured_error_msg)
    assert len(fake.cluster.items("pods")) == 1


def test_an_image_without_python(runner: Runner, index: PackageIndex, tmp_path: Path) -> None:
    """It is named, and what to do."""
    image = "registry.example/no-python:1"
    job, _ = _run(runner, index, tmp_path, "tiny==1.0", image=image, max_retries=1)
    status = job.wait(timeout=60)
    assert status.state is AppState.FAILED
    assert f"image {image!r} has no python3" in status.msg
    assert "--environment none" in status.msg


def test_a_role_without_an_image() -> None:
    """Its packages are installed in the public Python of the built-in components."""
    wanted = Environment("requirements.txt", "packages.txt", "0123456789abcdef" * 4)
    role = Role("main", "", entrypoint="python", args=["train.py"], environment=wanted)
    job = convert(AppDef("a", [role]), {"jobset": "never"}, "kubernetes", "a").jobs[0]
    pods = job["spec"]["template"]["spec"]
    assert {each["image"] for each in (*pods["initContainers"], *pods["containers"])} == {
        transload.IMAGE
    }


def test_what_is_too_long_to_travel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is refused by its size before anything starts."""
    from transload.schedulers.environments import read_environment, recipe_of

    (tmp_path / "requirements.txt").write_text("tiny\n")
    found = read_environment(
        Environment("requirements.txt", "r.txt", source="requirements.txt"), str(tmp_path), "e"
    )
    monkeypatch.setattr(environments, "_LONGEST", 10)
    role = Role("main", IMAGE, entrypoint="sh", environment=found)
    with pytest.raises(SubmitError, match="at most 10 travel in a pod"):
        environments.provide(role, recipe_of(found))
