"""``ResultTracker`` and ``FsspecResultTracker`` beyond what the conformance suite asks of every tracker."""

from __future__ import annotations

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
from transload.runtime.tracking import FsspecResultTracker, ResultTracker, TrackingError


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
    """A subclass that has only ``put`` and ``get`` works as a map; what needs a list says that there is none."""
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
    """A job finds its tracker in the environment; without one it is told what to do."""
    monkeypatch.delenv("TRANSLOAD_TRACKER_BASE", raising=False)
    with pytest.raises(TrackingError, match="TRANSLOAD_TRACKER_BASE is not set"):
        FsspecResultTracker.from_env()
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
    assert (tmp_path / "3.json").read_text() == '{"schema": 1, "key": "3", "results": {"w": 1.5, "c": 2, "n": "x"}}'


def test_scalar_of_a_library_is_refused_with_a_hint(tmp_path: Path) -> None:
    """A number that is no Python number is refused, and the message says what to do."""
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TrackingError, match=r"'x'.*float32.*call its \.item\(\)"):
        FsspecResultTracker(tmp_path).put("k", x=numpy.float32(1.5))
    FsspecResultTracker(tmp_path).put("k", x=numpy.float64(1.5))


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
    """The message of a wait in vain names key, time and place; the error is the common one."""
    with pytest.raises(TransloadTimeout, match=f"no results of key '7' within 0.01 s in {tmp_path}"):
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
    """Processes forked from one that has written use names of their own for what they are writing."""
    tracker = FsspecResultTracker(tmp_path)
    tracker.put("warm", x=1)
    code = (
        "import os, sys\n"
        "from transload.runtime.tracking import FsspecResultTracker\n"
        "from transload.runtime.tracking._stores import aside_name\n"
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
        "heavy = {'fsspec', 'pluggy', 'click', 'asyncio', 'logging', 'dataclasses', 'urllib', 'subprocess', 'socket'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "ours = [m for m in sys.modules if m.startswith('transload.')]\n"
        "assert all(m.startswith(('transload.runtime', 'transload.errors')) for m in ours), ours\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=env)


def test_import_costs_little() -> None:
    """The import costs a fraction of what fsspec alone would."""
    bare, ours, fsspec = (_cpu(code) for code in ("pass", "import transload.runtime.tracking", "import fsspec"))
    assert ours - bare < (fsspec - bare) / 2
