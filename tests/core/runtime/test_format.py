"""The public file format takes what other programs and other versions write."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

from transload.runtime.tracking import FsspecResultTracker, TrackingError


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder for results."""
    return tmp_path


@pytest.fixture
def tracker(base: Path) -> FsspecResultTracker:
    """A tracker on it."""
    return FsspecResultTracker(base)


def test_what_is_written(base: Path, tracker: FsspecResultTracker) -> None:
    """One file, with exactly the documented body, and nothing else in the folder."""
    tracker.put("a/b", loss=math.nan, n=2**70, text="ü")
    (file,) = base.iterdir()
    assert file.name == "a%2Fb.json"
    assert file.read_bytes() == (
        b'{"schema": 1, "key": "a/b", "results": {"loss": NaN, "n": 1180591620717411303424, '
        b'"text": "\\u00fc"}}'
    )


def test_shell_script_reports(base: Path, tracker: FsspecResultTracker) -> None:
    """A shell script can report results."""
    script = """
    printf '{"schema": 1, "key": "train", "results": {"loss": 0.25, "worst": Infinity}}' > .mine.tmp
    mv .mine.tmp train.json
    """
    subprocess.run(["sh", "-ec", script], cwd=base, check=True)
    assert tracker.get("train") == {"loss": 0.25, "worst": math.inf}
    assert tracker.keys() == ["train"]


def test_shell_script_reads(base: Path, tracker: FsspecResultTracker) -> None:
    """A shell script can read results."""
    tracker.put("train", loss=0.25)
    command = "sed 's/.*\"loss\": \\([0-9.]*\\).*/\\1/' train.json"
    assert subprocess.check_output(["sh", "-ec", command], cwd=base, text=True).strip() == "0.25"


@pytest.mark.parametrize(
    ("name", "body", "key"),
    [
        ("7.json", {"schema": 1, "key": 7, "results": {"x": 1}}, "7"),
        ("t.json", {"schema": 1, "key": "t", "results": {"x": True}}, "t"),
        (
            "w.json",
            {"schema": 1, "key": "w", "results": {"x": 1}, "run": 3, "writer": [], "replaced": {}},
            "w",
        ),
        ("x.json", {"schema": 1, "results": {"x": 1}}, "x"),
        (
            "a%20b.json",
            {"schema": 1, "key": "a b", "results": {"x": 1}, "written_by": "2.0", "more": [1]},
            "a b",
        ),
    ],
    ids=["int key", "bool", "odd writer", "no key", "more fields"],
)
def test_other_writers(
    base: Path, tracker: FsspecResultTracker, name: str, body: object, key: str
) -> None:
    """What a simpler or a newer writer leaves out or adds does not matter."""
    (base / name).write_text(json.dumps(body, indent=4))
    assert tracker.get(key) == {"x": 1}
    assert tracker.keys() == [key]
    assert tracker.to_dict() == {key: {"x": 1}}


def test_newer_schema_is_refused(base: Path, tracker: FsspecResultTracker) -> None:
    """A file of a schema that this version does not know is an error that says so, not a wrong
    answer.
    """
    (base / "k.json").write_text('{"schema": 2, "key": "k", "values": []}')
    for call in (
        lambda: tracker.get("k"),
        tracker.keys,
        tracker.to_dict,
        lambda: tracker.wait("k", 0),
    ):
        with pytest.raises(TrackingError, match=r"k\.json: schema 2; this version reads up to 1"):
            call()


@pytest.mark.parametrize("value", ["null", "[1]", '{"a": 1}'])
def test_foreign_value_is_named(base: Path, tracker: FsspecResultTracker, value: str) -> None:
    """A value that no result can have, written by another program, is an error that names it."""
    (base / "k.json").write_text(f'{{"schema": 1, "key": "k", "results": {{"odd": {value}}}}}')
    with pytest.raises(TrackingError, match=r"k\.json: result 'odd'"):
        tracker.get("k")


FOREIGN = {
    "notes.txt": b"hello",
    "config.json": b'{"lr": 0.1}',
    "list.json": b"[1, 2]",
    "empty.json": b"",
    "torn.json": b'{"schema": 1, "key": "torn", "resu',
    "binary.json": b"\xff\xfe\x00",
    "deep.json": b"[" * 100_000,
    "schema.json": b'{"schema": "one", "key": "schema", "results": {}}',
    "zero.json": b'{"schema": 0, "key": "zero", "results": {}}',
    "true.json": b'{"schema": true, "key": "true", "results": {}}',
    "noresults.json": b'{"schema": 1, "key": "noresults"}',
    "badkey.json": b'{"schema": 1, "key": [1], "results": {}}',
    "renamed.json": b'{"schema": 1, "key": "other", "results": {"x": 1}}',
    "not encoded.json": b'{"schema": 1, "key": "not encoded", "results": {"x": 1}}',
    "%6Botherwise.json": b'{"schema": 1, "key": "kotherwise", "results": {"x": 1}}',
    ".hidden.json": b'{"schema": 1, "key": ".hidden", "results": {"x": 1}}',
    ".abc-0.tmp": b'{"schema": 1, "key": "k", "results": {"x": 9}}',
    ".json": b'{"schema": 1, "key": "", "results": {"x": 1}}',
    "upper.JSON": b'{"schema": 1, "key": "upper", "results": {"x": 1}}',
}


def test_foreign_files_do_no_harm(base: Path, tracker: FsspecResultTracker) -> None:
    """Files of others, half-written ones and litter change no answer, and are left as they are."""
    tracker.put("k", x=1)
    for name, content in FOREIGN.items():
        (base / name).write_bytes(content)
    (base / "folder.json").mkdir()
    (base / "dangling.json").symlink_to(base / "nowhere")
    for opened in (tracker, FsspecResultTracker(base)):
        assert opened.keys() == ["k"]
        assert opened.to_dict() == {"k": {"x": 1}}
        for key in (
            "config",
            "list",
            "empty",
            "torn",
            "deep",
            "renamed",
            "other",
            "not encoded",
            ".hidden",
            "upper",
        ):
            assert opened.get(key) == {}
            assert key not in opened
    assert {name: (base / name).read_bytes() for name in FOREIGN} == FOREIGN


def test_foreign_file_gives_way(base: Path, tracker: FsspecResultTracker) -> None:
    """A key whose file was taken by something else can be written all the same."""
    (base / "torn.json").write_bytes(FOREIGN["torn.json"])
    tracker.put("torn", x=1)
    assert tracker.get("torn") == {"x": 1}


def test_nothing_leaves_the_base(base: Path) -> None:
    """Whatever the key, only files directly in the base are made."""
    from transload_testing.odd_texts import ODD_TEXTS

    tracker = FsspecResultTracker(base / "inner" / "results")
    for key in ODD_TEXTS.values():
        tracker.put(key, x=1)
    made = [path for path in base.rglob("*") if path.is_file()]
    assert {path.parent for path in made} == {base / "inner" / "results"}
    assert len(made) == len(ODD_TEXTS)
