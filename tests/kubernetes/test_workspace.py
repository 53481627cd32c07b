"""Workspaces are packed, uploaded once, and fetched by the init container's command."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from transload.errors import SubmitError
from transload.specs import AppDef, Role, Workspace
from transload_kubernetes.convert import convert
from transload_kubernetes.options import KubernetesOptions
from transload_kubernetes.workspace import with_uploads


def workspace_app(folder: Path) -> AppDef:
    """Return an app with a workspace of two files."""
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "run.sh").write_text("echo ran\n")
    (folder / "run.sh").chmod(0o755)
    return AppDef(
        "a",
        [
            Role(
                "main",
                "python:3.11",
                entrypoint="python3",
                workspace=Workspace({str(folder): "code"}),
            )
        ],
    )


def test_upload_and_fetch(tmp_path: Path) -> None:
    """The init container's program unpacks the upload, and the same content is uploaded once."""
    app, store = workspace_app(tmp_path / "code"), tmp_path / "store"
    cfg = KubernetesOptions.read({"workspace_url": f"file://{store}"})
    prepared = with_uploads(app, str(cfg.workspace_url))
    again = with_uploads(app, str(cfg.workspace_url))
    assert prepared == again
    (uploaded,) = store.iterdir()
    before = uploaded.stat().st_mtime_ns
    with_uploads(app, str(cfg.workspace_url))
    assert uploaded.stat().st_mtime_ns == before
    pod = convert(prepared, cfg, "kubernetes", "a").jobs[0]["spec"]["template"]["spec"]
    *command, target = pod["initContainers"][0]["command"]
    assert target == pod["containers"][0]["workingDir"] == "/workspace"
    here = tmp_path / "here"
    subprocess.run(
        [*(part.replace("$$", "$") for part in command), str(here)], check=True, timeout=60
    )
    assert (here / "code" / "train.py").read_text() == "print('trained')\n"
    assert (here / "code" / "run.sh").stat().st_mode & 0o111, "as it was: a program"


def test_an_upload_that_fails_is_a_failed_submit(tmp_path: Path) -> None:
    """A place that cannot be written to is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SubmitError, match="cannot be uploaded"):
        with_uploads(workspace_app(tmp_path / "code"), f"file://{tmp_path}/file/below")


def test_an_archive_that_was_changed_is_refused(tmp_path: Path) -> None:
    """An archive that somebody has replaced under its name is refused as a whole."""
    app, store = workspace_app(tmp_path / "code"), tmp_path / "store"
    (tmp_path / "code" / "link").symlink_to("run.sh")
    (tmp_path / "code" / "hard.sh").hardlink_to(tmp_path / "code" / "run.sh")
    (tmp_path / "code" / "outputs").mkdir()
    cfg = KubernetesOptions.read({"workspace_url": f"file://{store}"})
    pod = convert(with_uploads(app, f"file://{store}"), cfg, "kubernetes", "a").jobs[0]["spec"][
        "template"
    ]["spec"]
    command = [part.replace("$$", "$") for part in pod["initContainers"][0]["command"]][:-1]
    subprocess.run([*command, str(tmp_path / "good")], check=True, timeout=60)
    assert (tmp_path / "good" / "code" / "link").readlink() == Path("run.sh")
    assert (tmp_path / "good" / "code" / "hard.sh").read_text() == "echo ran\n"
    assert (tmp_path / "good" / "code" / "outputs").is_dir()
    (uploaded,) = store.iterdir()
    good = uploaded.read_bytes()
    for number, change in enumerate(("content", "more", "folder", "mode", "cut")):
        with (
            tarfile.open(fileobj=io.BytesIO(good)) as archive,
            tarfile.open(uploaded, "w:gz") as changed,
        ):
            for entry in archive.getmembers():
                data = archive.extractfile(entry).read() if entry.isfile() else b""  # type: ignore[union-attr]
                if change == "content" and entry.name.endswith("train.py"):
                    data = b"print('hostile')"
                if change == "mode" and entry.name.endswith("train.py"):
                    entry.mode |= 0o111
                if change == "cut" and entry.name.endswith("train.py"):
                    continue
                entry.size = len(data) if entry.isfile() else 0
                changed.addfile(entry, io.BytesIO(data))
            extra = tarfile.TarInfo("./code/sitecustomize.py")
            extra.type = tarfile.DIRTYPE if change == "folder" else tarfile.REGTYPE
            if change in ("more", "folder"):
                changed.addfile(extra)
        target = tmp_path / f"bad{number}"
        found = subprocess.run(
            [*command, str(target)], capture_output=True, text=True, timeout=60, check=False
        )
        assert found.returncode == 1 and "is not what was uploaded there" in found.stderr, change
        assert not target.exists()
