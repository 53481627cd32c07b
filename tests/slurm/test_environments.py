"""Packages of jobs are made once on the login node, and kept while jobs use them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transload.cli import main
from transload.errors import ConfigError, SubmitError, UnsupportedFeature
from transload.runner import Job, Launch, Runner
from transload.specs import AppDef, Role
from transload_slurm.environments import choose_python
from transload_testing.packages import PackageIndex, package_index

UV = shutil.which("uv") or ""
Eventually = Callable[..., Any]
PRINT = "import sys, tiny; print(tiny.VERSION, sys.prefix)"
WAIT = "import time, tiny; time.sleep(200)"
CONTENT = "requirements.txt"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index with the package ``tiny``, and a file in the working directory that names it."""
    with package_index(tmp_path / "index") as served:
        served.add("tiny", "1.0")
        served.be_the_only_one(monkeypatch)
        yield served


@pytest.fixture
def needs_tiny(index: PackageIndex) -> Path:
    """Write a file in the working directory that names the package.

    Tests take their cluster first.
    """
    file = Path(CONTENT)
    file.write_text("tiny\n", encoding="utf-8")
    return file


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


def submit(
    runner: Runner,
    index: PackageIndex,
    code: str = PRINT,
    *,
    app_id: str | None = None,
    scheduler: str = "slurm",
) -> Job:
    """Submit a line of Python that runs with what the file names."""
    role = Role("main", "/tmp", entrypoint="python3", args=["-c", code], env=index.variables())
    launch = Launch(app=AppDef("test", [role]), scheduler=scheduler, environment=CONTENT)
    return launch.plan(runner, app_id=app_id).submit()


def output_of(job: Job) -> str:
    """Wait until a job has succeeded, and return the only line that it wrote."""
    status = job.wait(90)
    lines = [line.rstrip() for line in job.logs("main", 0)]
    assert status.state.name == "SUCCEEDED", (status, lines)
    (line,) = lines
    return line


def leftovers(root: Path) -> list[str]:
    """Return what lies there beside finished environments and their locks."""
    links = [each for each in root.iterdir() if each.is_symlink()]
    kept = {each.name for each in links}
    kept |= {os.readlink(each) for each in links}
    kept |= {f"{each.name}.lock" for each in links}
    return sorted({each.name for each in root.iterdir()} - kept)


def grow_old(path: str, seconds: float = 3600.0) -> None:
    """Have an environment look as if it was last used so long ago."""
    when = time.time() - seconds
    os.utime(f"{path}/environment.json", (when, when))


def test_made_once_below_the_folder_of_the_jobs(
    runner: Runner, index: PackageIndex, needs_tiny: Path, slurm_dir: Path
) -> None:
    """The program finds its package. The next job fetches nothing, and runs in the same folder."""
    first = submit(runner, index, app_id="one")
    version, prefix = output_of(first).split()
    assert version == "1.0"
    folder = Path(prefix).parent
    assert folder.parent == slurm_dir / ".environments"
    record = json.loads((slurm_dir / "one" / "record.json").read_text())
    assert record["environments"] == [str(folder)]
    fetched = list(index.requests)
    assert output_of(submit(runner, index)) == f"1.0 {prefix}"
    assert index.requests == fetched
    assert leftovers(folder.parent) == []


@pytest.mark.engine("sshd")
def test_made_once_on_the_login_node(
    afar: Runner,
    hpc: Path,
    index: PackageIndex,
    needs_tiny: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By ssh an environment is made there, below the folder of the jobs.

    The command line lists it, keeps it while a job uses it, and deletes it.
    """
    root = hpc / ".environments"
    with caplog.at_level("INFO", "transload"):
        version, prefix = output_of(submit(afar, index, scheduler="hpc")).split()
    said = [each.getMessage() for each in caplog.records if "environment" in each.getMessage()]
    assert len(said) == 1 and ": made in " in said[0], said
    assert version == "1.0"
    assert Path(prefix).parent.parent == root
    fetched = list(index.requests)
    job = submit(afar, index, WAIT, scheduler="hpc")
    assert index.requests == fetched
    scheduler = afar.scheduler("hpc")
    (found,) = scheduler.environments()
    assert (found.path, found.name, found.in_use) == (str(Path(prefix).parent), CONTENT, True)
    assert found.size and found.files
    grow_old(found.path)
    assert main(["delete", "--environments", "-s", "hpc"]) == 0
    assert "0 environments deleted; 1 stay: in use" in capsys.readouterr().err
    job.cancel()
    job.wait(60)
    assert main(["list", "--environments", "-s", "hpc", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["environments"]
    assert (row["name"], row["in_use"]) == (CONTENT, False), row
    assert main(["delete", "--environments", "-s", "hpc"]) == 0
    assert CONTENT in capsys.readouterr().out
    assert list(root.iterdir()) == []


def test_kept_while_a_job_uses_it_or_may_be_about_to(
    runner: Runner, index: PackageIndex, needs_tiny: Path, slurm_dir: Path
) -> None:
    """An environment that a job uses, or used a moment ago, is kept. Old ones are deleted."""
    job = submit(runner, index, WAIT)
    scheduler = runner.scheduler("slurm")
    (found,) = scheduler.environments()
    assert found.in_use
    grow_old(found.path)
    assert scheduler.delete_environments() == []
    job.cancel()
    job.wait(60)
    os.utime(f"{found.path}/environment.json")
    assert scheduler.delete_environments() == []
    grow_old(found.path)
    assert scheduler.delete_environments(older_than=7200.0) == []
    assert [each.key for each in scheduler.delete_environments(dry_run=True)] == [found.key]
    assert Path(found.path).exists()
    assert [each.in_use for each in scheduler.delete_environments()] == [False]
    assert list((slurm_dir / ".environments").iterdir()) == []


def test_a_damaged_record_may_use_any(
    runner: Runner, index: PackageIndex, needs_tiny: Path, slurm_dir: Path
) -> None:
    """As long as the record of a job that may run cannot be read, none is deleted."""
    job = submit(runner, index, WAIT, app_id="one")
    scheduler = runner.scheduler("slurm")
    (found,) = scheduler.environments()
    grow_old(found.path)
    record = slurm_dir / "one" / "record.json"
    text = record.read_text()
    record.write_text("{")
    assert scheduler.delete_environments() == []
    record.write_text(text)
    job.cancel()
    job.wait(60)
    assert len(scheduler.delete_environments()) == 1


def test_removed_before_the_job_was_submitted(
    runner: Runner, index: PackageIndex, needs_tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is submitted that would not find its packages."""
    scheduler = runner.scheduler("slurm")
    before = scheduler.apps.make_environment

    def remove(*args: Any, **more: Any) -> str:
        folder = before(*args, **more)
        grow_old(folder)
        assert scheduler.delete_environments()
        return str(folder)

    monkeypatch.setattr(scheduler.apps, "make_environment", remove)
    with pytest.raises(SubmitError, match="was removed before the job was submitted"):
        submit(runner, index)
    assert runner.list("slurm") == []


SUBMIT = """\
import sys
from transload.runner import Launch, Runner
from transload.specs import AppDef, Role
with Runner("tests") as runner:
    role = Role("main", "/tmp", entrypoint="true", env={env!r})
    launch = Launch(app=AppDef("test", [role]), scheduler={name!r}, environment="requirements.txt")
    job = launch.plan(runner).submit()
    code = job.wait(90).state.name != "SUCCEEDED"
    job.delete()
    sys.exit(code)
"""


def submitter(index: PackageIndex, name: str) -> subprocess.Popen[str]:
    """Start a process that submits a job, waits for it and deletes it."""
    code = SUBMIT.format(env=index.variables(), name=name)
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.engine("sshd")
def test_a_lock_of_uv_where_there_is_none(
    hpc: Path, login: Any, cluster: Any, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submitter's uv turns it into requirements, and pip installs them on the login node."""
    monkeypatch.setenv("PATH", f"{login.leads['PATH']}:{Path(UV).parent}")
    places = [each for each in cluster.env["PATH"].split(":") if not Path(each, "uv").exists()]
    python = hpc.parent / "python3"
    python.write_text(
        f'#!/bin/sh\nPATH="{":".join(places)}" exec {sys.executable} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    settings = hpc.parent / "transload.toml"
    settings.write_text(settings.read_text() + f'login_python = "{python}"\n', encoding="utf-8")
    Path("pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.9"\n'
        'dependencies = ["tiny"]\n',
        encoding="utf-8",
    )
    subprocess.run([UV, "lock", "-q"], check=True, timeout=60)
    index.add("tiny", "2.0")
    role = Role("main", "/tmp", entrypoint="python3", args=["-c", PRINT], env=index.variables())
    launch = Launch(
        app=AppDef("test", [role]),
        scheduler="hpc",
        environment="uv.lock",
        cfg={"python": sys.executable},
    )
    with Runner("tests") as runner:
        job = launch.plan(runner).submit()
        assert output_of(job).startswith("1.0 ")
        job.delete()
    (record,) = hpc.glob(".environments/*.*/environment.json")
    assert json.loads(record.read_text())["installer"] == "pip"


@pytest.mark.slow
@pytest.mark.engine("sshd")
def test_wheels_that_are_fetched_here_and_sent(
    afar: Runner, hpc: Path, index: PackageIndex
) -> None:
    """A login node that knows no index installs what the submitter has fetched for its Python.
    Without the option the message names it.
    """
    minor = f"{sys.version_info[0]}{sys.version_info[1]}"
    index.add("tiny", "2.0", tag=f"cp{minor}-cp{minor}-manylinux_2_17_{os.uname().machine}")
    index.add("tiny", "3.0", tag="cp37-cp37m-manylinux_2_17_x86_64")
    Path(CONTENT).write_text("tiny\n", encoding="utf-8")
    role = Role("main", "/tmp", entrypoint="python3", args=["-c", PRINT])
    launch = Launch(
        app=AppDef("test", [role]),
        scheduler="hpc",
        cfg={"offline": True, "python": sys.executable},
        environment=CONTENT,
    )
    assert output_of(launch.plan(afar).submit()).startswith("2.0 ")
    fetched = list(index.requests)
    assert output_of(launch.plan(afar).submit()).startswith("2.0 ")
    assert index.requests == fetched
    Path(CONTENT).write_text("tiny==3.0\n", encoding="utf-8")
    with pytest.raises(SubmitError, match=r"(?s)its wheels for Python .* cannot be.*tiny==3\.0"):
        launch.plan(afar).submit()
    assert leftovers(hpc / ".environments") == []
    role.env = dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), "http://127.0.0.1:9/simple")
    role.env.update({"PIP_RETRIES": "1", "UV_HTTP_RETRIES": "0"})
    launch = replace(launch, cfg={"python": sys.executable})
    with pytest.raises(
        SubmitError, match=r"where the cluster reaches no index, set offline = true"
    ):
        launch.plan(afar).submit()


def test_offline_is_for_clusters_behind_ssh(
    runner: Runner, shell_app: Callable[..., AppDef]
) -> None:
    """Where the login node is this machine there is nothing to send."""
    launch = Launch(app=shell_app("true"), scheduler="slurm", cfg={"offline": True})
    with pytest.raises(ConfigError, match="run option offline=true: only for a cluster behind ssh"):
        launch.plan(runner)


def makers_of(root: Path) -> list[str]:
    """Return the processes that work in a folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            place = os.readlink(each / "cwd")
            words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if place.startswith(str(root)):
            found.append(words)
    return found


@pytest.mark.engine("sshd")
def test_a_killed_maker_leaves_nothing_that_is_trusted(
    cluster: Any,
    hpc: Path,
    index: PackageIndex,
    needs_tiny: Path,
    eventually: Eventually,
) -> None:
    """What it started ends, nothing was submitted, and the next submit makes it anew."""
    root = hpc / ".environments"
    index.answers.clear()
    first = submitter(index, "hpc")
    eventually(lambda: index.requests or first.poll(), 60)
    assert first.poll() is None, first.communicate()
    assert makers_of(root)
    first.kill()
    first.communicate(timeout=60)
    eventually(lambda: not makers_of(root), 30)
    index.answers.set()
    assert [each for each in root.iterdir() if each.is_symlink()] == []
    assert [each.name for each in hpc.iterdir() if not each.name.startswith(".")] == ["bin"]
    second = submitter(index, "hpc")
    said = second.communicate(timeout=100)[1]
    assert second.returncode == 0, said
    assert leftovers(root) == []


@pytest.mark.parametrize(
    "scheduler", ["slurm", pytest.param("hpc", marks=pytest.mark.engine("sshd"))]
)
def test_what_cannot_be_made_is_a_submit_that_failed(
    scheduler: str, index: PackageIndex, needs_slurm: None, request: pytest.FixtureRequest
) -> None:
    """The message has the installer's last lines, or the Python found and the one wanted.

    Nothing was submitted.
    """
    runner = request.getfixturevalue({"slurm": "runner", "hpc": "afar"}[scheduler])
    Path(CONTENT).write_text("absent\n", encoding="utf-8")
    with pytest.raises(SubmitError, match=r"(?s)cannot be made.*\n.*absent") as caught:
        submit(runner, index, scheduler=scheduler)
    assert not caught.value.transient
    Path("script.py").write_text(
        '# /// script\n# requires-python = ">=3.99"\n# dependencies = ["tiny"]\n# ///\n',
        encoding="utf-8",
    )
    role = Role("main", "/tmp", entrypoint="true")
    launch = Launch(
        app=AppDef("test", [role]),
        scheduler=scheduler,
        environment="script.py",
        cfg={"python": sys.executable},
    )
    have = ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(SubmitError, match=rf"wants Python >=3\.99; here is {have} \("):
        launch.plan(runner).submit()
    launch = replace(launch, cfg={"python": "/nowhere/python3"})
    with pytest.raises(SubmitError, match=r"here is no /nowhere/python3"):
        launch.plan(runner).submit()
    assert runner.list(scheduler) == []
    folder: Path = request.getfixturevalue({"slurm": "slurm_dir", "hpc": "hpc"}[scheduler])
    assert leftovers(folder / ".environments") == []


def test_not_inside_of_a_container(runner: Runner, index: PackageIndex, needs_tiny: Path) -> None:
    """A role that runs in an image is refused by the name of the field, before anything is made."""
    role = Role("main", "docker://python:3.11", entrypoint="true")
    launch = Launch(
        app=AppDef("test", [role]),
        scheduler="slurm",
        environment=CONTENT,
        cfg={"container": "apptainer"},
    )
    with pytest.raises(UnsupportedFeature, match=r"roles\[0\]\.environment: .*--environment none"):
        launch.plan(runner)
    assert index.requests == []


def test_the_python_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of the prologue that load modules determine the Python. Others are not run here."""
    loaded = tmp_path / "loaded" / "bin"
    loaded.mkdir(parents=True)
    python = loaded / "python3"
    python.symlink_to(sys.executable)
    (tmp_path / ".bash_profile").write_text(
        f'module() {{ export PATH="{loaded}:$PATH" LD_LIBRARY_PATH="/a lib"; }}\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    prologue = f"touch {tmp_path}/ran\nmodule load python/3.11\n"
    chosen = choose_python("python3", prologue)
    assert (chosen.path, chosen.variables) == (str(python), {"LD_LIBRARY_PATH": "/a lib"})
    assert not (tmp_path / "ran").exists()
    assert choose_python("", "export X=1").path == ""
    assert choose_python("/opt/python3", prologue).path == "/opt/python3"
