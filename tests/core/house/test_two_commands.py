"""The two commands of the README, in a fresh clone and on machines that lack this or that."""

from __future__ import annotations

import ast
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transload_testing.packages import package_index

ROOT = Path(__file__).parents[3]
OTHERS = ["3.6", "3.7", "3.8", "3.9", "3.10", "3.14"]


def python(version: str) -> str | None:
    """Return a real Python of a version, or None where this machine has none that runs."""
    own = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    for found in filter(None, [*map(str, own), shutil.which(f"python{version}")]):
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        if said.stdout.startswith(f"Python {version}."):
            return found
    return None


@pytest.mark.parametrize("version", OTHERS)
@pytest.mark.parametrize("file", ["quickstart.py", "run_tests.py"])
def test_another_python_is_refused_in_one_line(tmp_path: Path, version: str, file: str) -> None:
    """The line has the version found, those that will do, and what to type. No folder is made."""
    ast.parse((ROOT / file).read_text(), feature_version=(3, min(int(version[2:]), 11)))
    for name in ("quickstart.py", "run_tests.py"):
        shutil.copy(ROOT / name, tmp_path)
    found = python(version)
    if found is None:
        pytest.skip(f"no Python {version} is here")
    said = subprocess.run(
        [found, "-B", file, "--with", "slurm"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (1, "", 1)
    assert said.stderr.startswith(f"{file}: Python 3.11, 3.12 or 3.13 is needed, and ")
    assert f" is {version}." in said.stderr and "uv run --no-project --python 3.12" in said.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"quickstart.py", "run_tests.py"}


def test_a_host_that_others_hold_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where several plugins share an environment, an old host is named with the newest one."""
    quickstart = runpy.run_path(str(ROOT / "quickstart.py"))
    venv = tmp_path / "venv"
    with package_index(tmp_path / "index") as index:
        index.be_the_only_one(monkeypatch)
        monkeypatch.setenv("UV_NO_CACHE", "1")
        monkeypatch.setenv("VIRTUAL_ENV", str(venv))
        for name, version in (("prefect", "3.9.1"), ("apache_airflow", "3.2.1")):
            index.add(name, version)
        simple = tmp_path / "index" / "simple"
        (simple / "apache-airflow").symlink_to(simple / "apache_airflow")
        uv("venv", "--python", sys.executable, str(venv))
        uv("pip", "install", "apache-airflow", "prefect")
        index.add("apache_airflow", "3.3.2")
        (line,) = quickstart["held_back"](["airflow", "prefect", "slurm"])
        assert quickstart["held_back"](["airflow"]) == []
    assert "apache-airflow is 3.2.1 here" in line and "alone it would be 3.3.2" in line
    assert "--with airflow --venv" in line


def uv(*words: str) -> None:
    """Run uv, which must end well."""
    subprocess.run(["uv", *words], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--with", "report,slrum"], "--with slrum: no such plugin; there are: airflow, ax, "),
        (["--host", "slurm"], "invalid choice: 'slurm'"),
        (["--with", "ax", "--host", "kfp"], "only one of them"),
        (["--with", "ax", "--replicas", "2"], "only one of them"),
        (["--venv", "mine"], "mine: holds other files, no environment: name another by --venv"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    """It is named before anything is installed, and a folder of something else is left alone."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("precious")
    said = subprocess.run(
        [sys.executable, str(ROOT / "quickstart.py"), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode != 0 and message in said.stderr.splitlines()[-1]
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "mine",
        "mine/letter",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "plugin", sorted(path.parent.name for path in ROOT.glob("plugins/[!_]*/pyproject.toml"))
)
def test_each_plugin_installs_from_a_checkout(
    tmp_path: Path, transload_home: Path, plugin: str
) -> None:
    """Each plugin is installed by one line in a fresh clone, and is in order."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    clone = tmp_path / "a folder" / "transload"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120)
    for command in (
        [sys.executable, "quickstart.py", "--with", plugin],
        [".venv/bin/transload", "info"],
    ):
        said = subprocess.run(
            command, cwd=clone, capture_output=True, text=True, timeout=800, check=False
        )
        assert said.returncode == 0, said.stdout + said.stderr
    assert f"transload-{plugin}" in said.stdout, said.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_both_commands_in_a_fresh_clone() -> None:
    """Without uv, with an empty HOME and two indexes, of which the first has ancient packages."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "fresh_clone.py")],
        env={**os.environ, "TRANSLOAD_HOME": ""},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "SUCCEEDED" in done.stdout + done.stderr
