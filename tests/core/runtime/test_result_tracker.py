"""``ResultTracker`` and ``FsspecResultTracker`` beyond what the conformance suite asks of every
tracker.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from transload.errors import TransloadTimeout
from transload.runtime.tracking import (
    FsspecResultTracker,
    ResultTracker,
    TrackingError,
    app_folder,
    open_store,
    output_folder,
    read_bodies,
)
from transload_testing.odd_texts import same


class OnlyPutAndGet(ResultTracker):
    """A tracker as it was written for TorchX."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}

    def put(self, key: int | str, /, **results: Any) -> None:
        """Store."""
        self.stored[str(key)] = results

    def get(self, key: int | str) -> dict[str, Any]:
        """Look up."""
        return self.stored.get(str(key), {})


def test_torchx_subclass_works() -> None:
    """A subclass with only ``put`` and ``get`` works as a map, and says that it has no list."""
    tracker = OnlyPutAndGet()
    tracker["a"] = {"self": 1, "key": 2}
    assert tracker["a"] == {"self": 1, "key": 2}
    with pytest.raises(NotImplementedError, match="OnlyPutAndGet"):
        tracker.keys()


def test_torchx_import_paths() -> None:
    """Both module paths give the same names."""
    import transload.runtime.tracking.api as api

    assert api.FsspecResultTracker is FsspecResultTracker
    assert api.ResultTracker is ResultTracker


@pytest.mark.parametrize("form", ["{0}", "{0}/", "file://{0}", "local://{0}", "{0}//"])
def test_forms_of_a_local_base(tmp_path: Path, form: str) -> None:
    """All forms of a local base name the same folder, which is made at the first write only."""
    folder = tmp_path / "deep" / "results"
    tracker = FsspecResultTracker(form.format(folder))
    assert tracker.get("k") == {}
    assert tracker.keys() == []
    assert not folder.exists()
    tracker.put("k", x=1)
    assert FsspecResultTracker(folder).get("k") == {"x": 1}
    assert tracker.where() == str(folder)


def test_a_url_of_a_folder_spells_its_signs(tmp_path: Path) -> None:
    """``%20`` of a ``file://`` URL is a space of the path, and in a plain path it is itself."""
    folder = tmp_path / "my results é"
    FsspecResultTracker(folder.as_uri()).put("k", x=1)
    assert [path.name for path in tmp_path.iterdir()] == ["my results é"]
    assert FsspecResultTracker(folder).get("k") == {"x": 1}
    plain = tmp_path / "a%20b"
    FsspecResultTracker(plain).put("k", x=2)
    assert plain.is_dir()
    assert app_folder(folder.as_uri(), "a:b") == f"{folder}/.apps/a%3Ab"
    assert output_folder(app_folder(plain.as_uri(), "a:b")) == f"{plain}/.apps/a%3Ab/outputs"


def test_relative_base_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative base is taken from where the tracker was made."""
    monkeypatch.chdir(tmp_path)
    tracker = FsspecResultTracker("results")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    tracker.put("k", x=1)
    assert (tmp_path / "results" / "k.json").exists()


def test_home_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` is the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    FsspecResultTracker("~/results").put("k", x=1)
    assert (tmp_path / "results" / "k.json").exists()


def test_local_name_that_looks_like_a_chain(tmp_path: Path) -> None:
    """An absolute path is a path, whatever characters it has."""
    tracker = FsspecResultTracker(tmp_path / "a::b" / "s3:")
    tracker.put("k", x=1)
    assert (tmp_path / "a::b" / "s3:" / "k.json").exists()


@pytest.mark.parametrize("base", ["", "nosuch://bucket/x", "nul\0byte"])
def test_bad_base(base: str) -> None:
    """A base that cannot be is refused when the tracker is made."""
    with pytest.raises(TrackingError):
        FsspecResultTracker(base)


def test_base_that_is_a_file(tmp_path: Path) -> None:
    """A base that is a file is an error that names it, not an empty store."""
    (tmp_path / "file").write_text("x")
    tracker = FsspecResultTracker(tmp_path / "file")
    for call in (lambda: tracker.put("k", x=1), lambda: tracker.get("k"), tracker.keys):
        with pytest.raises(NotADirectoryError, match="file"):
            call()


def test_base_that_cannot_be_written(tmp_path: Path) -> None:
    """A failing write is an error, changes nothing, and leaves no litter."""
    tracker = FsspecResultTracker(tmp_path)
    (tmp_path / "k.json").mkdir()
    with pytest.raises(IsADirectoryError):
        tracker.put("k", x=1)
    assert [path.name for path in tmp_path.iterdir()] == ["k.json"]
    assert (tracker.get("k"), "k" in tracker, tracker.keys()) == ({}, False, [])


def test_from_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job finds its tracker in the environment. Outside of one, values are only checked."""
    monkeypatch.delenv("TRANSLOAD_TRACKER_BASE", raising=False)
    monkeypatch.chdir(tmp_path)
    nowhere = pickle.loads(pickle.dumps(FsspecResultTracker.from_env()))
    nowhere.put(0, x=1)
    assert (nowhere.keys(), nowhere.get(0), nowhere.where()) == ([], {}, "nowhere:")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TrackingError, match="'x'"):
        nowhere.put(0, x=None)
    monkeypatch.setenv("TRANSLOAD_TRACKER_BASE", str(tmp_path))
    FsspecResultTracker.from_env().put(0, x=1)
    assert FsspecResultTracker(tmp_path).keys() == ["0"]


def test_pickle(tmp_path: Path) -> None:
    """A tracker can be sent to another process."""
    tracker = FsspecResultTracker(tmp_path, storage_options={"a": 1})
    tracker.put("k", x=1)
    copy = pickle.loads(pickle.dumps(tracker))
    assert copy.get("k") == {"x": 1}
    assert repr(copy) == repr(tracker) == f"FsspecResultTracker({str(tmp_path)!r})"


def test_subclasses_of_numbers_become_plain(tmp_path: Path) -> None:
    """A float or int of a library's own type is stored as the number that it is."""

    class Weight(float):
        def __repr__(self) -> str:
            return "heavy"

    class Count(int):
        def __repr__(self) -> str:
            return "many"

    class Name(str):
        __slots__ = ()

    tracker = FsspecResultTracker(tmp_path)
    tracker.put(Count(3), w=Weight(1.5), c=Count(2), n=Name("x"))
    assert (
        tmp_path / "3.json"
    ).read_text() == '{"schema": 1, "key": "3", "results": {"w": 1.5, "c": 2, "n": "x"}}'


def test_scalars_of_numpy(tmp_path: Path) -> None:
    """Numbers of numpy are taken as what they are, arrays of one element too.

    Others are refused.
    """
    numpy = pytest.importorskip("numpy")
    tracker = FsspecResultTracker(tmp_path)
    tracker.put(
        "k", a=numpy.float32(1.5), b=numpy.int64(3), c=numpy.bool_(True), d=numpy.array([2.5])
    )
    assert same(tracker.get("k"), {"a": 1.5, "b": 3, "c": 1, "d": 2.5})
    with pytest.raises(TrackingError, match="'x'"):
        tracker.put("k", x=numpy.array([1, 2]))


def test_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job without storage has one file with a line for each key, and a limit."""
    file = tmp_path / "message"
    file.write_text('{"message": "other"}\n')
    monkeypatch.delenv("TRANSLOAD_TRACKER_BASE", raising=False)
    monkeypatch.setenv("TRANSLOAD_RESULT_FILE", str(file))
    tracker = FsspecResultTracker.from_env()
    for x in range(500):
        tracker.put("k", x=x)
    tracker.put("a/b", y=1)
    assert FsspecResultTracker.from_env().to_dict() == {"a/b": {"y": 1}, "k": {"x": 499}}
    assert file.read_text() == (
        '{"message": "other"}\n{"schema": 1, "key": "k", "results": {"x": 499}}\n'
        '{"schema": 1, "key": "a/b", "results": {"y": 1}}\n'
    )
    with pytest.raises(
        TrackingError, match=r"message: 4,\d+ bytes of results; at most 4,095 .* give tracker_base"
    ):
        tracker.put("big", **{f"name-{number}": "x" * 1000 for number in range(4)})
    assert tracker.keys() == ["a/b", "k"]


def _replica(
    monkeypatch: pytest.MonkeyPatch, number: int, run: str = "local://s/a", role: str = "train"
) -> None:
    values = {
        "JOB_ID": run,
        "ROLE": role,
        "ROLES": "train,serve",
        "REPLICA_ID": number,
        "NUM_REPLICAS": 3,
        "RETRY": 2,
    }
    for name, value in values.items():
        monkeypatch.setenv(f"TRANSLOAD_{name}", str(value))


def test_a_file_says_who_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has the job's handle, role, replica and attempt. Overwriting another's is reported."""
    tracker, store = FsspecResultTracker(tmp_path), open_store(tmp_path)
    _replica(monkeypatch, 0)
    tracker.put("final", x=1)
    assert json.loads((tmp_path / "final.json").read_text()) == {
        "schema": 1,
        "key": "final",
        "results": {"x": 1},
        "run": "local://s/a",
        "writer": {"role": "train", "replica": 0, "attempt": 2},
    }
    tracker.put("final", x=2)
    assert read_bodies(store)["final"].replaced == ()
    for number in (1, 2, 1):
        _replica(monkeypatch, number)
        tracker.put("final", x=number)
    assert read_bodies(store)["final"].replaced == ("train/0", "train/2")
    _replica(monkeypatch, 1, run="local://s/other")
    tracker.put("final", x=3)
    assert read_bodies(store)["final"].replaced == ()


def test_wait_is_prompt(tmp_path: Path) -> None:
    """On a local folder waiting ends soon after the put."""
    import time

    tracker = FsspecResultTracker(tmp_path)
    put_at: list[float] = []

    def put() -> None:
        put_at.append(time.monotonic())
        FsspecResultTracker(tmp_path).put("k", x=1)

    timer = threading.Timer(0.1, put)
    timer.start()
    assert tracker.wait("k", timeout=30) == {"x": 1}
    late = time.monotonic() - put_at[0]
    timer.join()
    assert late < 1.0  # a poll of 50 ms at most, on a busy machine


def test_wait_tells_where_it_looked(tmp_path: Path) -> None:
    """A wait in vain has the common error, which names key, time and place."""
    with pytest.raises(
        TransloadTimeout, match=f"no results of key '7' within 0.01 s in {tmp_path}"
    ):
        FsspecResultTracker(tmp_path).wait(7, timeout=0.01)


def test_reader_sees_keys_that_come_later(tmp_path: Path) -> None:
    """What a tracker has seen once does not hide what others do later."""
    tracker = FsspecResultTracker(tmp_path)
    other = FsspecResultTracker(tmp_path)
    other.put("a", x=1)
    assert tracker.keys() == ["a"]
    other.put("b" * 500, x=1)
    assert tracker.keys() == ["a", "b" * 500]
    (tmp_path / "a.json").unlink()
    assert tracker.keys() == ["b" * 500]


def test_forked_children_do_not_collide(tmp_path: Path) -> None:
    """Processes forked from one that has written use names of their own for what they are
    writing.
    """
    tracker = FsspecResultTracker(tmp_path)
    tracker.put("warm", x=1)
    code = (
        "import os, sys\n"
        "from transload.runtime.tracking import FsspecResultTracker\n"
        "from transload.runtime import aside_name\n"
        "FsspecResultTracker(sys.argv[1]).put('parent', x=1)\n"
        "r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(w, aside_name().encode()); os._exit(0)\n"
        "os.wait()\n"
        "mine, theirs = aside_name(), os.read(r, 100).decode()\n"
        "assert mine.split('-')[0] != theirs.split('-')[0], (mine, theirs)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def _cpu(code: str) -> float:
    """Return the median CPU seconds of an interpreter that runs ``code``."""
    seconds = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


def test_import_is_light(tmp_path: Path) -> None:
    """An application that reports to a folder loads no fsspec and little else."""
    code = (
        "import sys\n"
        "from transload.runtime.tracking import FsspecResultTracker\n"
        "t = FsspecResultTracker(sys.argv[1]); t.put('k', x=1); assert t.get('k') == {'x': 1}\n"
        "heavy = {'fsspec', 'pluggy', 'click', 'asyncio', 'logging', 'dataclasses', 'urllib', "
        "'subprocess', 'socket'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "ours = [m for m in sys.modules if m.startswith('transload.')]\n"
        "known = ('transload.runtime', 'transload.errors', 'transload.plugins')\n"
        "assert all(m.startswith(known) for m in ours), ours\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=env)


def test_import_costs_little() -> None:
    """The import costs a fraction of what fsspec alone would."""
    bare, ours, fsspec = (
        _cpu(code) for code in ("pass", "import transload.runtime.tracking", "import fsspec")
    )
    assert ours - bare < (fsspec - bare) / 2
