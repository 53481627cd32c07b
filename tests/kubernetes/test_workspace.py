"""Workspaces: packed, uploaded once, fetched by the very command of the init container."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from transload.errors import SubmitError
from transload.specs import AppDef, Role, Workspace
from transload_kubernetes.convert import convert
from transload_kubernetes.options import run_opts
from transload_kubernetes.workspace import with_uploads


def workspace_app(folder: Path) -> AppDef:
    """Return an app with a workspace of two files."""
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "run.sh").write_text("echo ran\n")
    (folder / "run.sh").chmod(0o755)
    return AppDef("a", [Role("main", "python:3.11", entrypoint="python3", workspace=Workspace({str(folder): "code"}))])


def test_upload_and_fetch(tmp_path: Path) -> None:
    """The init container's program unpacks what was uploaded; the same content is uploaded once."""
    app, store = workspace_app(tmp_path / "code"), tmp_path / "store"
    cfg = run_opts().resolve({"workspace_url": f"file://{store}"})
    prepared = with_uploads(app, str(cfg["workspace_url"]))
    again = with_uploads(app, str(cfg["workspace_url"]))
    assert prepared == again
    (uploaded,) = store.iterdir()
    before = uploaded.stat().st_mtime_ns
    with_uploads(app, str(cfg["workspace_url"]))
    assert uploaded.stat().st_mtime_ns == before
    pod = convert(prepared, cfg, "kubernetes", "a").jobs[0]["spec"]["template"]["spec"]
    *command, target = pod["initContainers"][0]["command"]
    assert target == pod["containers"][0]["workingDir"] == "/workspace"
    here = tmp_path / "here"
    subprocess.run([*(part.replace("$$", "$") for part in command), str(here)], check=True, timeout=60)
    assert (here / "code" / "train.py").read_text() == "print('trained')\n"
    assert (here / "code" / "run.sh").stat().st_mode & 0o111, "as it was: a program"


def test_an_upload_that_fails_is_a_failed_submit(tmp_path: Path) -> None:
    """A place that cannot be written to is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SubmitError, match="cannot be uploaded"):
        with_uploads(workspace_app(tmp_path / "code"), f"file://{tmp_path}/file/below")
