"""``transload.runtime.untrusted`` opens, reads and lists what a job may have written."""

from __future__ import annotations

import os
import pickle
import socket
from pathlib import Path

import pytest

from transload.runtime.untrusted import (
    MOST_FOLDERS,
    RefusedFile,
    open_file,
    pieces,
    read_end,
    read_file,
    read_start,
    walk,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file in it, and a file beside it that nobody may be led to."""
    (tmp_path / "secret").write_text("hunter2")
    folder = tmp_path / "of-job"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_text("content")
    return folder


def _refusal(folder: Path, path: str) -> str:
    with pytest.raises(RefusedFile) as caught:
        read_file(str(folder), path, 100)
    assert str(folder / path) in str(caught.value)
    return caught.value.reason


def test_regular_file_is_read_whole_or_in_part(folder: Path) -> None:
    """A regular file is read whole, from its start, from its end, and piece by piece."""
    top = str(folder)
    assert read_file(top, "file", 7) == b"content"
    assert read_start(top, "file", 3) == b"con"
    assert read_end(top, "file", 3) == b"ent"
    assert read_end(top, "file", 30) == b"content"
    assert list(pieces(top, "file")) == [b"content"]


def test_missing_files_and_folders_raise_what_open_raises(folder: Path) -> None:
    """What is not there is FileNotFoundError with the whole path, a folder IsADirectoryError."""
    for path in ("none", "none/file", "inner/none"):
        with pytest.raises(FileNotFoundError, match=f"{folder}/{path}"):
            open_file(str(folder), path)
    for path in ("inner", "", ".", "inner/.."):
        with pytest.raises(IsADirectoryError):
            open_file(str(folder), path)


def test_fifos_sockets_and_devices_are_refused_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no regular file is refused, with its kind, and nobody waits for a writer."""
    os.mkfifo(folder / "fifo")
    monkeypatch.chdir(folder)  # a socket's path may have 107 bytes
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("sock")
    (folder / "zero").symlink_to("/dev/zero")
    assert _refusal(folder, "fifo").startswith("a FIFO")
    assert _refusal(folder, "sock").startswith("a socket")
    assert "leads out of its folder" in _refusal(folder, "zero")
    (folder / "inner" / "pipe").symlink_to("../fifo")
    assert _refusal(folder, "inner/pipe").startswith("a FIFO")
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(RefusedFile, match="a FIFO"):
            open_file(str(folder), "fifo", flags)


@pytest.mark.parametrize(
    "target",
    [
        "../secret",
        "{outside}",
        "inner/../../secret",
        "/etc/passwd",
        "inner/out/passwd",
        "/dev/fd/0",
    ],
)
def test_links_do_not_leave_the_folder(folder: Path, target: str) -> None:
    """Relative and absolute links, and links behind links, lead nowhere outside."""
    (folder / "inner" / "out").symlink_to("/etc")
    (folder / "link").symlink_to(target.format(outside=folder.parent / "secret"))
    assert "leads out of its folder" in _refusal(folder, "link")


@pytest.mark.parametrize(
    "target", ["file", "inner/../file", "{inside}", "inner/up/file", "./link2"]
)
def test_links_inside_the_folder_are_followed(folder: Path, target: str) -> None:
    """A program's own ``latest`` link works, absolute or relative, through other links too."""
    (folder / "inner" / "up").symlink_to("..")
    (folder / "link2").symlink_to("inner/up/file")
    (folder / "link").symlink_to(target.format(inside=folder / "file"))
    assert read_file(str(folder), "link", 100) == b"content"
    assert "link" in walk(str(folder))[0]


def test_folder_itself_may_be_reached_by_a_link(folder: Path) -> None:
    """The folder itself is trusted, as a user's data folder may be a link to another disk."""
    (folder.parent / "data").symlink_to(folder)
    (folder / "link").symlink_to(folder / "file")
    top = str(folder.parent / "data")
    assert read_file(top, "file", 100) == read_file(top, "link", 100) == b"content"


def test_paths_do_not_leave_the_folder(folder: Path) -> None:
    """A path with ``..`` or an absolute one is refused as a link is."""
    for path in ("../secret", "inner/../../secret", str(folder.parent / "secret")):
        with pytest.raises(RefusedFile):
            open_file(str(folder), path)


def test_links_behind_each_other_have_an_end(folder: Path) -> None:
    """A link to itself, and a ladder of links, are refused after a fixed number of steps."""
    (folder / "self").symlink_to("self")
    assert "links behind each other" in _refusal(folder, "self")
    (folder / "l0").mkdir()
    for step in range(1, 37):
        (folder / f"l{step}").mkdir()
        for name in ("a", "b"):
            (folder / f"l{step}" / name).symlink_to(f"../l{step - 1}")
    assert len(walk(str(folder))[1]) == 1 + 2 * 36
    (folder / "here").symlink_to(".")
    assert "links behind each other" in _refusal(folder, "here/" * 41 + "file")


def test_large_files_are_refused_by_their_size(folder: Path) -> None:
    """A sparse file of 6 GB is not read, and the message has both sizes."""
    with open(folder / "huge", "wb") as file:
        file.truncate(6 << 30)
    assert _refusal(folder, "huge") == "6,442,450,944 bytes; at most 100 are read"
    assert len(read_start(str(folder), "huge", 10)) == len(read_end(str(folder), "huge", 10)) == 10


def test_a_file_is_made_where_that_is_asked_for(folder: Path) -> None:
    """With flags that write, a missing file is made, and a link is never written through."""
    os.close(open_file(str(folder), "inner/new", os.O_WRONLY | os.O_CREAT))
    assert (folder / "inner" / "new").stat().st_mode & 0o777 == 0o600
    (folder / "to-new").symlink_to("inner/new")
    (folder / "dangling").symlink_to("../made")
    for path in ("to-new", "dangling"):
        with pytest.raises(RefusedFile, match="link"):
            open_file(str(folder), path, os.O_WRONLY | os.O_CREAT)
    assert not (folder.parent / "made").exists()


def test_walk_lists_files_and_names_what_it_refuses(folder: Path) -> None:
    """Loops, links that leave or lead nowhere and FIFOs are named, and every file is listed."""
    (folder / "a").symlink_to(".")
    (folder / "etc").symlink_to("/etc")
    (folder / "gone").symlink_to("nothing")
    (folder / "inner" / "deep").write_text("")
    (folder / "inner" / ".hidden").write_text("")
    os.mkfifo(folder / "inner" / "fifo")
    files, refused = walk(str(folder))
    assert files == ["file", "inner/deep"]
    assert refused == {
        "a": "a link to a folder, which is not followed",
        "etc": "a link that leads out of its folder",
        "gone": "a link to nothing",
        "inner/fifo": "a FIFO; only regular files are used here",
    }
    assert walk(str(folder), "inner")[0] == ["inner/deep"]
    assert walk(str(folder), "none") == ([], {})
    with pytest.raises(RefusedFile):
        walk(str(folder), "etc")
    with pytest.raises(NotADirectoryError):
        walk(str(folder), "file")


def test_walk_has_an_end(folder: Path) -> None:
    """No more names are looked at than allowed, no folder too deep, and both are said."""
    for number in range(5):
        (folder / "inner" / str(number)).write_text("")
    files, refused = walk(str(folder), most=4)
    assert len(files) == 3
    assert list(refused.values()) == ["more than 4 files; the rest is not looked at"]
    assert walk(str(folder), most=7)[1] == {}
    deep = folder / "/".join("d" * (MOST_FOLDERS + 5))
    deep.mkdir(parents=True)
    (deep / "file").write_text("")
    assert list(walk(str(folder))[1].values()) == [f"more than {MOST_FOLDERS} folders deep"]


def test_refusal_survives_pickling() -> None:
    """The error reaches another process whole."""
    again = pickle.loads(pickle.dumps(RefusedFile("/a/b", "a FIFO")))
    assert (str(again), again.reason) == ("/a/b: a FIFO", "a FIFO")
