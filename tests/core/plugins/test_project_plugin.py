"""A file transload_plugins.py beside the project's configuration is a plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

POLICY = """
from dataclasses import replace

from transload.errors import SpecError
from transload.plugins import hookimpl
from transload.specs import Resource


@hookimpl
def transload_before_submit(app, scheduler):
    if app.name == "nobody":
        raise SpecError(f"{app.name}: house rule: give the job a name")
    return replace(app, metadata={**app.metadata, "team": "vision"})


@hookimpl
def transload_named_resources(register):
    register("team.big", "transload_plugins:big")


def big():
    return Resource(cpu=2, gpu=0, memMB=64)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a plugin in one file, where below is the working directory."""
    folder = tmp_path / "project"
    (folder / "below").mkdir(parents=True)
    (folder / "transload.toml").write_text("")
    (folder / "transload_plugins.py").write_text(POLICY)
    monkeypatch.chdir(folder / "below")
    for name in ("TRANSLOAD_CONFIG", "TRANSLOAD_DISABLE_PLUGINS", "TRANSLOAD_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRANSLOAD_HOME", str(tmp_path / "home"))
    return folder


def call(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Return what the command line said."""
    command = [sys.executable, "-m", "transload", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environ}, timeout=60
    )


def dry_run(name: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Return what a dry-run of a job with a name says."""
    return call("run", "--dry-run", "--json", "--name", name, *words, "--", "true", **environ)


def team(said: subprocess.CompletedProcess[str]) -> str | None:
    """Return the metadata that the house policy sets, of what a dry-run says."""
    assert said.returncode == 0, said.stderr
    found: str | None = json.loads(said.stdout)["app"].get("metadata", {}).get("team")
    return found


@pytest.mark.usefixtures("project")
def test_policy_holds_for_each_submit() -> None:
    """The file's house policy changes a definition, and refuses one."""
    assert team(dry_run("digits")) == "vision"
    refused = dry_run("nobody")
    assert refused.returncode == 2
    assert "house rule: give the job a name" in refused.stderr


@pytest.mark.usefixtures("project")
def test_its_names_are_known() -> None:
    """What it registers is there, also as the name of an attribute of the file."""
    said = call("run", "--dry-run", "--json", "utils.sh", "-h", "team.big", "--", "true")
    assert json.loads(said.stdout)["app"]["roles"][0]["resource"]["memMB"] == 64, said.stderr
    about = call("info", "transload_plugins", "--json")
    (plugin,) = json.loads(about.stdout)["plugins"]
    assert plugin["status"] == "loaded"
    assert plugin["provides"] == {"named_resources": ["team.big"]}


@pytest.mark.usefixtures("project")
def test_left_out() -> None:
    """It can be disabled, and a job, whose workspace may hold a copy, does not run it."""
    assert team(dry_run("digits", TRANSLOAD_DISABLE_PLUGINS="transload_plugins")) is None
    assert team(dry_run("digits", TRANSLOAD_JOB_ID="local://default/other-job")) is None


@pytest.mark.parametrize("text", ["import nothing_of_that_name", "raise SystemExit(3)", "def"])
def test_broken_file_lets_nothing_be_submitted(project: Path, text: str) -> None:
    """A file that fails is named where a job is submitted. Other commands go on, and say so."""
    (project / "transload_plugins.py").write_text(text)
    refused = dry_run("digits")
    assert refused.returncode == 2
    assert str(project / "transload_plugins.py") in refused.stderr
    assert "Traceback" not in refused.stderr
    assert call("list").returncode == 0
    about = call("info", "transload_plugins")
    assert about.returncode == 2
    assert "Traceback" in about.stdout


def test_hook_that_fails_keeps_the_policy(project: Path) -> None:
    """Where one hook of the file fails, its names are missing, and its policy holds all the same."""
    text = POLICY.replace('register("team.big", ', "raise RuntimeError(").replace(
        '"transload_plugins:big")', '"no")'
    )
    (project / "transload_plugins.py").write_text(text)
    assert call("info", "transload_plugins").returncode == 2
    assert team(dry_run("digits")) == "vision"
    assert "RuntimeError" in call("info", "transload_plugins").stdout


def test_file_that_all_can_write_is_not_run(project: Path) -> None:
    """A file that was found by searching is run only if not everybody can write to it."""
    (project / "transload_plugins.py").chmod(0o666)
    refused = dry_run("digits")
    assert refused.returncode == 2
    assert "(mode 666)" in refused.stderr
    named = str(project / "transload.toml")
    assert team(dry_run("digits", TRANSLOAD_CONFIG=named)) == "vision"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_not_run(project: Path) -> None:
    """A file that was found by searching is run only if it is this user's or root's."""
    os.chown(project / "transload_plugins.py", 12345, 12345)
    refused = dry_run("digits")
    assert refused.returncode == 2
    assert "belongs to user 12345" in refused.stderr
