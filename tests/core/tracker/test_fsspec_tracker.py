"""``FsspecTracker`` beyond what the conformance suite asks of every tracker."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from transload.errors import ConfigError
from transload.runtime.tracking import TrackingError
from transload.runtime.tracking.stores import LocalStore
from transload.tracker import FsspecTracker
from transload.tracker.fsspec import create
from transload_testing.odd_texts import ODD_TEXTS


@pytest.fixture
def tracker(tmp_path: Path) -> FsspecTracker:
    """A tracker on an empty folder."""
    return FsspecTracker(None, tmp_path)


def test_torchx_construction(tmp_path: Path) -> None:
    """A tracker is made of a file system and a root, which need not exist, and is fast locally."""
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path / "runs"))
    tracker.add_metadata("run", x=1)
    assert FsspecTracker(None, tmp_path / "runs").metadata("run") == {"x": 1}
    assert isinstance(tracker._store, LocalStore)
    assert repr(tracker) == f"<FsspecTracker: root_path={tmp_path}/runs>"


def test_folder_shown_as_a_file_system(tmp_path: Path) -> None:
    """A file system that is a folder of another one is looked through."""
    shown = DirFileSystem(str(tmp_path), fsspec.filesystem("file"))
    tracker = FsspecTracker(shown, "runs")
    tracker.add_metadata("run", x=1)
    assert FsspecTracker(None, tmp_path / "runs").metadata("run") == {"x": 1}


def test_nothing_leaves_the_root(tmp_path: Path) -> None:
    """Whatever the ids, every file lies below the root."""
    tracker = FsspecTracker(None, tmp_path / "inner" / "root")
    for run_id in ODD_TEXTS.values():
        tracker.add_metadata(run_id, x=1)
        tracker.add_source(run_id, run_id)
        tracker.add_artifact(run_id, run_id, run_id)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert all(path.is_relative_to(tmp_path / "inner" / "root") for path in files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner"]


def test_foreign_files_do_no_harm(tmp_path: Path, tracker: FsspecTracker) -> None:
    """Files of others and litter of killed writers, anywhere below the root, change no answer."""
    tracker.add_metadata("run", x=1)
    tracker.add_source("run", "parent")
    folder = tmp_path / "runs" / "run"
    mine = (folder / "metadata.x.json").read_bytes()
    for place in (
        tmp_path,
        tmp_path / "runs",
        folder,
        tmp_path / "children",
        tmp_path / "children" / "parent",
    ):
        (place / "notes.txt").write_text("hello")
        (place / "x.json").write_text("{")
        (place / "metadata.y.json").write_text('{"schema": 1, "run_id": "run"}')
        (place / "metadata.z.json").write_text('{"schema": 1, "run_id": "z", "name": "z"}')
        (place / "metadata.0.json").write_text("[1]")
        (place / ".abc-0.tmp").write_bytes(mine)
        (place / "not encoded").mkdir()
    (tmp_path / "runs" / ("k" * 120 + "=" + "0" * 32)).mkdir()
    (folder / "metadata.folder.json").mkdir()
    for opened in (tracker, FsspecTracker(None, tmp_path)):
        assert opened.run_ids() == ["run"]
        assert opened.metadata("run") == {"x": 1}
        assert opened.run_ids(parent_run_id="parent") == ["run"]


def test_files_are_public(tmp_path: Path, tracker: FsspecTracker) -> None:
    """They are as the documentation says, so that another program may write them."""
    tracker.add_metadata("local://s/a", lr=0.1)
    tracker.add_artifact("local://s/a", "model", "/m")
    tracker.add_source("local://s/a", "prep", "data")
    folder = tmp_path / "runs" / "local%3A%2F%2Fs%2Fa"
    run = {"schema": 1, "run_id": "local://s/a"}
    bodies = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert bodies == {
        "metadata.lr.json": {**run, "name": "lr", "value": 0.1},
        "artifact.model.json": {**run, "name": "model", "path": "/m", "metadata": None},
        "source.%5B%22prep%22%2C%20%22data%22%5D.json": {
            **run,
            "source_id": "prep",
            "artifact_name": "data",
        },
    }
    (folder / "metadata.lr.json").write_text(json.dumps({**run, "name": "lr", "value": 0.2}))
    assert tracker.metadata("local://s/a") == {"lr": 0.2}


def test_newer_schema_is_refused(tmp_path: Path, tracker: FsspecTracker) -> None:
    """A file of a schema that this version does not know is an error that names it."""
    tracker.add_metadata("run", x=1)
    file = tmp_path / "runs" / "run" / "metadata.x.json"
    file.write_text(file.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(TrackingError, match=r"runs/run/metadata\.x\.json: schema 2"):
        tracker.metadata("run")


def test_link_without_record_does_not_count(tmp_path: Path, tracker: FsspecTracker) -> None:
    """A writer killed between link and record has not added the source in either direction."""
    tracker.add_metadata("run", x=1)
    tracker.add_source("other", "parent")
    (folder,) = (tmp_path / "children").iterdir()
    (folder / "run.json").write_text('{"schema": 1, "run_id": "run", "source_id": "parent"}')
    assert tracker.run_ids(parent_run_id="parent") == ["other"]
    assert tracker.sources("run") == []


def test_failed_write_spoils_nothing(
    tmp_path: Path, tracker: FsspecTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up in the middle of a record costs that record only."""
    tracker.add_metadata("run", a=1)
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[: len(data) - 10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            tracker.add_metadata("run", a=2)
    assert tracker.metadata("run") == {"a": 1}
    tracker.add_metadata("run", a=3)
    tracker.add_metadata("run", b=4)
    assert tracker.metadata("run") == {"a": 3, "b": 4}


def test_removed_run_begins_anew(tmp_path: Path, tracker: FsspecTracker) -> None:
    """A run whose folder was removed is gone, and writing to it makes a new one."""
    import shutil

    tracker.add_metadata("run", a=1)
    shutil.rmtree(tmp_path / "runs" / "run")
    assert tracker.run_ids() == []
    tracker.add_metadata("run", b=2)
    assert tracker.metadata("run") == {"b": 2}


def test_a_forked_child_goes_on_with_the_tracker(tmp_path: Path) -> None:
    """Parent and forked child may both go on with the tracker that the parent made."""
    code = (
        "import os, sys\n"
        "from transload.tracker import FsspecTracker\n"
        "t = FsspecTracker(None, sys.argv[1]); t.add_metadata('run', start=1)\n"
        "pid = os.fork()\n"
        "for i in range(50): t.add_metadata('run', **{f'{pid and 1}-{i}': i})\n"
        "if pid == 0: os._exit(0)\n"
        "os.wait()\n"
        "t.add_metadata('run', last='parent')\n"
        "assert len(t.metadata('run')) == 102\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_pickle(tmp_path: Path, tracker: FsspecTracker) -> None:
    """A tracker can be sent to another process, with or without its file system."""
    tracker.add_metadata("run", x=1)
    for each in (tracker, FsspecTracker(fsspec.filesystem("file"), tmp_path)):
        assert pickle.loads(pickle.dumps(each)).metadata("run") == {"x": 1}


def test_unknown_filter(tracker: FsspecTracker) -> None:
    """A filter that does not exist is refused, not passed over."""
    with pytest.raises(TrackingError, match="unknown filter experiment; known: parent_run_id"):
        tracker.run_ids(experiment="x")


def test_listing_reads_no_run(
    tmp_path: Path, tracker: FsspecTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of all runs is one listing of one folder."""
    for number in range(20):
        tracker.add_metadata(f"local://s/app-{number}", x=1)
    listings: list[str] = []
    real = LocalStore.entries

    def counted(self: LocalStore, folder: str = "") -> object:
        listings.append(folder)
        return real(self, folder)

    monkeypatch.setattr(LocalStore, "entries", counted)
    monkeypatch.setattr(LocalStore, "read", lambda self, path: pytest.fail(f"read {path}"))
    assert len(tracker.run_ids()) == 20
    assert listings == ["runs"]


def test_artifact_path_object(tmp_path: Path, tracker: FsspecTracker) -> None:
    """A path object is as good as its text, and what is no text is refused by name."""
    tracker.add_artifact("run", "a", tmp_path / "x")  # type: ignore[arg-type]
    assert tracker.artifacts("run")["a"].path == str(tmp_path / "x")
    with pytest.raises(TrackingError, match="name=7"):
        tracker.add_artifact("run", 7, "/p")  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------------
# configuration

Written = Callable[[Path], str]

CONFIGS: dict[str, Written] = {
    "path": lambda folder: f"{folder}/runs",
    "url": lambda folder: f"file://{folder}/runs",
    "json": lambda folder: json.dumps({"root_path": f"{folder}/runs"}),
    "json with protocol": lambda folder: json.dumps(
        {"protocol": "file", "root_path": f"{folder}/runs"}
    ),
    "torchx's": lambda folder: _file(
        folder, f"protocol = file\nroot_path = {folder}/runs\nauto_mkdir = True\n"
    ),
    "file": lambda folder: _file(
        folder, f"# settings\n\nprotocol = file\nroot_path={folder}/runs\n"
    ),
}


def _file(folder: Path, text: str) -> str:
    (folder / "tracker.cfg").write_text(text)
    return str(folder / "tracker.cfg")


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_create(tmp_path: Path, config: Written) -> None:
    """Every form of configuration leads to the same place."""
    create(config(tmp_path)).add_metadata("run", x=1)
    assert FsspecTracker(None, tmp_path / "runs").metadata("run") == {"x": 1}


def test_create_with_storage_options(tmp_path: Path) -> None:
    """Options are passed to the storage, and a dot in a file of settings makes a nested one."""
    pytest.importorskip("s3fs")
    config = _file(
        tmp_path,
        "protocol = s3\nroot_path = runs/a\nanon = yes\nclient_kwargs.endpoint_url = http://x:1\n",
    )
    tracker = create(config)
    assert tracker._store.fs.storage_options == {
        "anon": "yes",
        "client_kwargs": {"endpoint_url": "http://x:1"},
    }
    tracker = create(json.dumps({"root_path": "s3://runs/a", "anon": True}))
    assert tracker._store.fs.storage_options == {"anon": True}
    assert repr(tracker) == "<FsspecTracker: root_path=s3://runs/a>"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "nothing is configured"),
        ("  ", "nothing is configured"),
        ("relative/runs", "relative.*absolute"),
        ("{", "not a JSON object"),
        ("{}", "root_path=None"),
        ('{"root_path": 7}', "root_path=7"),
        ('{"root_path": "/x", "protocol": "nosuch"}', "protocol='nosuch'"),
        ('{"root_path": "/x", "protocl": "s3", "anon": true}', "unknown setting anon, protocl"),
        ("nosuch://x/y", "nosuch"),
    ],
)
def test_create_refuses(config: str | None, message: str) -> None:
    """A wrong configuration is refused, and the message tells what is wrong."""
    with pytest.raises((ConfigError, TrackingError), match=message):
        create(config)


@pytest.mark.parametrize(
    "line", ["just text", "= value", "a..b = c", "a. = c", "protocol = file\nprotocol.x = 1"]
)
def test_create_refuses_a_bad_file(tmp_path: Path, line: str) -> None:
    """A bad line of a settings file is refused with its place."""
    with pytest.raises(ConfigError, match=r"tracker.cfg:\d"):
        create(_file(tmp_path, line + "\n"))
