"""Paths in a settings file are relative to that file, wherever the command is typed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transload.components import get_component
from transload.runner import Launch, Runner, load_settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a folder below it, which is the working directory."""
    (tmp_path / "a project" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a project" / "deep")
    return tmp_path / "a project"


def _dry_run(invoke: Any, *words: str) -> Any:
    result = invoke("run", "--dry-run", "--json", *words, "--", "true")
    assert result.code == 0, result.err
    return result.json


@pytest.mark.parametrize("name", ["transload.toml", "pyproject.toml"])
def test_packages_of_a_project(invoke: Any, project: Path, name: str) -> None:
    """The file of packages beside the settings counts, and not one of the working directory."""
    table = "schedulers.local" if name == "transload.toml" else "tool.transload.schedulers.local"
    (project / name).write_text(f'[{table}]\nenvironment = "requirements.txt"\n')
    (project / "requirements.txt").write_text("tiny\n")
    (project / "deep" / "requirements.txt").write_text("another\n")
    role = _dry_run(invoke)["app"]["roles"][0]
    assert role["environment"]["source"] == str(project / "requirements.txt")
    given = _dry_run(invoke, "--environment", "requirements.txt")["app"]["roles"][0]
    assert given["environment"]["source"] == str(project / "deep" / "requirements.txt")


def test_other_forms_of_packages(project: Path) -> None:
    """Groups stay, an absolute path stays, and ``none`` is no file."""
    found = {}
    for text in ("uv.lock --group 'a'", "/abs/requirements.txt", "none", "~/r.txt"):
        (project / "transload.toml").write_text(f'[schedulers.local]\nenvironment = "{text}"\n')
        found[text] = load_settings().get("schedulers.local.environment")
    assert found == {
        "uv.lock --group 'a'": f"'{project}/uv.lock' --group 'a'",
        "/abs/requirements.txt": "/abs/requirements.txt",
        "none": "none",
        "~/r.txt": "'~/r.txt'",
    }


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (".", {"{}": ""}),
        ("deep", {"{}/deep": ""}),
        ("deep=code, .", {"{}/deep": "code", "{}": ""}),
    ],
)
def test_a_workspace(invoke: Any, project: Path, text: str, means: dict[str, str]) -> None:
    """What travels lies beside the settings."""
    (project / "transload.toml").write_text(f'workspace = "{text}"\n')
    with Runner("t") as runner:
        role = Launch(command=["true"]).plan(runner).app.roles[0]
    assert role.workspace is not None
    wanted = {path.format(project): target for path, target in means.items()}
    assert role.workspace.projects == wanted
    (project / "transload.toml").write_text('workspace = "/abs=x,~/mine"\n')
    assert load_settings().get("workspace") == "/abs=x,~/mine"


def test_where_jobs_report_and_log(invoke: Any, project: Path) -> None:
    """Results, logs and the folder that jobs work in lie beside the settings, a URL stays."""
    (project / "transload.toml").write_text(
        'tracker_base = "runs/${app_id}"\n'
        '[schedulers.local]\nlog_dir = "logs"\nworking_dir = "."\n'
        '[schedulers.far]\nkind = "local"\ntracker_base = "s3://b/${app_id}"\nstate_folder = "jobs"\n'
    )
    ran = invoke("run", "--app-id", "mine", "--", "sh", "-c", "pwd; echo $TRANSLOAD_TRACKER_BASE")
    assert ran.lines == [f"main/0 {project}", f"main/0 {project}/runs/mine/.apps/mine"], ran.err
    assert (project / "logs" / "mine").is_dir()
    assert list((project / "deep").iterdir()) == []
    settings = load_settings()
    assert settings.get("schedulers.far.tracker_base") == "s3://b/${app_id}"
    assert invoke("run", "-s", "far", "--detach", "--", "true").code == 0
    assert (project / "jobs").is_dir()
    invoke("wait", invoke("list", "-s", "far").out.split("\t")[0])


def test_the_users_own_file_lies_in_no_project(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says of paths is about the folder where the command is typed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "transload").mkdir(parents=True)
    (tmp_path / "config" / "transload" / "config.toml").write_text('workspace = "."\n')
    with Runner("t") as runner:
        role = Launch(command=["true"]).plan(runner).app.roles[0]
    assert role.workspace is not None and role.workspace.projects == {".": ""}


def test_a_secret_of_a_cluster(project: Path) -> None:
    """The file of a cluster's secret lies beside the settings, too."""
    (project / "transload.toml").write_text(
        "[schedulers.far]\nkind = 'local'\n[schedulers.far.secrets]\ntoken = 'file:token.txt'\n"
    )
    found = load_settings().get("schedulers.far.secrets")
    assert found == {"token": f"file:{project}/token.txt"}


def test_a_component_has_its_arguments_as_they_are(project: Path) -> None:
    """Only the component knows which of its arguments is a path."""
    (project / "transload.toml").write_text('[component."x.y"]\nworkspace = "."\nfile = "a"\n')
    component = replace(get_component("utils.echo"), name="x.y")
    assert load_settings().component_defaults(component) == {"workspace": ".", "file": "a"}
