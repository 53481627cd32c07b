"""Users who have no home folder, as those of containers often have none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

NOBODY = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
"""Runs a program as a user that has no name."""


@pytest.fixture
def run() -> Run:
    """Run the command line as a user without a name, with no variables but those given."""
    if subprocess.run([*NOBODY, "true"], capture_output=True).returncode:
        pytest.skip("not run: no user namespace can be made here")

    def start(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        command = [*NOBODY, sys.executable, "-m", "transload", *args]
        return subprocess.run(command, env={**env, **variables}, capture_output=True, text=True)

    return start


@pytest.mark.parametrize("home", [{}, {"HOME": "relative"}], ids=["none", "relative"])
@pytest.mark.parametrize("command", [("list",), ("run", "--", "true"), ("list", "-s", "slurm")])
def test_without_a_home_folder_it_says_what_to_set(
    run: Run, plain_folder: str, command: tuple[str, ...], home: dict[str, str]
) -> None:
    """Nothing is written into the working folder, and the message names the variable."""
    if "slurm" in command and run("info", "slurm", HOME="/").returncode:
        pytest.skip("not run: slurm: the plugin is not installed")
    ended = run(*command, **home)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "set TRANSLOAD_" in ended.stderr
    assert os.listdir(plain_folder) == []


def test_doctor_names_what_to_set(run: Run) -> None:
    """The local scheduler says it, too, and the other checks go on."""
    ended = run("doctor", "--json")
    assert ended.returncode == 3
    rows = json.loads(ended.stdout)["checks"]
    (local,) = [row for row in rows if row["name"] == "local"]
    assert local["status"] == "broken" and "TRANSLOAD_HOME" in local["detail"]
    assert rows[-1]["area"] == "plugin"


@pytest.mark.parametrize("variable", ["TRANSLOAD_HOME", "XDG_STATE_HOME"])
def test_a_folder_that_is_named_is_used(run: Run, tmp_path: Path, variable: str) -> None:
    """What the message asks for is enough, and so is the folder for states."""
    tmp_path.chmod(0o700)
    assert run("list", **{variable: str(tmp_path)}).returncode == 0
    ended = run("run", "--", "true", **{variable: str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    assert any(tmp_path.iterdir())


def test_a_relative_folder_for_states_does_not_count(
    run: Run, plain_folder: str, tmp_path: Path
) -> None:
    """It would be another one in each working folder."""
    assert run("run", "--", "true", HOME=str(tmp_path), XDG_STATE_HOME="rel").returncode == 0
    assert os.listdir(plain_folder) == []
    assert (tmp_path / ".local" / "state" / "transload").is_dir()
