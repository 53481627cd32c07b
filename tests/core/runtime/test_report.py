"""``report``, steps and ``transload put``."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from transload import runtime
from transload.runtime import MAX_POINTS, Folder, StepLog, report
from transload.runtime.tracking import FsspecResultTracker, open_store, read_curves, read_steps


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make this process a replica of a job, and return where it reports."""

    def make(role: str = "train", replica: int = 0, attempt: int = 0, roles: str = "train") -> Path:
        values = {
            "JOB_ID": "local://s/a",
            "ROLE": role,
            "ROLES": roles,
            "REPLICA_ID": replica,
            "RETRY": attempt,
        }
        for name, value in {**values, "NUM_REPLICAS": 2, "TRACKER_BASE": tmp_path / "base"}.items():
            monkeypatch.setenv(f"TRANSLOAD_{name}", str(value))
        monkeypatch.setattr(runtime, "_reports", None)
        monkeypatch.setattr(runtime, "_said", set())
        return tmp_path / "base"

    return make


def test_the_key_is_the_replicas(job: Callable[..., Path]) -> None:
    """Each replica has a key of its own. Other names keep their values in the same attempt."""
    base = job(replica=1)
    report(loss=0.5, n=True)
    report(loss=0.25)
    job("train", 1, roles="train,serve")
    report(loss=1)
    report(key="final", accuracy=0.9)
    job(replica=1)
    report(more=1)
    tracker = FsspecResultTracker(base)
    wanted = {
        "1": {"loss": 0.25, "n": 1, "more": 1},
        "final": {"accuracy": 0.9},
        "train/1": {"loss": 1},
    }
    assert tracker.to_dict() == wanted
    job(replica=1, attempt=1)
    report(loss=7)
    assert tracker["1"] == {"loss": 7}


def test_it_never_ends_a_program(
    job: Callable[..., Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are not allowed or cannot be written are left out with one warning."""
    base = job()
    for _ in range(3):
        report(loss=0.5, odd=None, step=float("nan"), **{"x" * 2000: 1})  # type: ignore[arg-type]
    assert FsspecResultTracker(base).to_dict() == {"0": {"loss": 0.5}}
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "result 'odd'=None" in caplog.text and "step=nan is no finite number" in caplog.text
    report(key="", loss=1)
    monkeypatch.setenv("TRANSLOAD_TRACKER_BASE", str(base / "0.json" / "below"))
    monkeypatch.setattr(runtime, "_reports", None)
    report(loss=1)
    assert "key=''" in caplog.text and "Not a directory" in caplog.text


def test_outside_of_a_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing happens, which is said once, for those who debug."""
    monkeypatch.delenv("TRANSLOAD_TRACKER_BASE", raising=False)
    monkeypatch.delenv("TRANSLOAD_RESULT_FILE", raising=False)
    monkeypatch.setattr(runtime, "_reports", None)
    monkeypatch.setattr(runtime, "_said", set())
    with caplog.at_level(logging.DEBUG):
        report(loss=1)
        report(loss=object(), step=2)
    assert [record.levelname for record in caplog.records if "goes nowhere" in record.message] == [
        "DEBUG"
    ]


def test_steps(job: Callable[..., Path]) -> None:
    """Each step is a line, and results hold the last. A next attempt goes on after it."""
    base = job()
    for step in range(3):
        report(step=step, loss=3 - step, note="x")
    file = base / "0.steps.jsonl"
    assert json.loads(file.read_text().splitlines()[1]) == {
        "schema": 1,
        "step": 1,
        "results": {"loss": 2, "note": "x"},
    }
    with open(file, "a") as end:
        end.write('{"schema": 1, "step": 3, "res')  # of a writer that was killed
    job(attempt=1)
    report(step=2, loss=0.5)
    report(step=3, loss=0.25)
    store = open_store(base)
    assert read_curves(store) == {"0": {"loss": {0: 3, 1: 2, 2: 0.5, 3: 0.25}}}
    assert read_steps(store, "", "loss", 0) == {0: 3, 1: 2, 2: 0.5, 3: 0.25}
    assert FsspecResultTracker(base)["0"] == {"loss": 0.25}


def test_steps_are_thinned(tmp_path: Path) -> None:
    """A curve has less than ten thousand points, evenly spread as far as one log goes."""
    store = open_store(tmp_path)
    log = StepLog(Folder(str(tmp_path)), "k")
    for step in range(4 * MAX_POINTS):
        log.add(step, {"x": step})
        log.write()
    steps = sorted(read_curves(store)["k"]["x"])
    assert MAX_POINTS // 2 <= len(steps) < MAX_POINTS
    assert {after - before for before, after in pairwise(steps)} == {8}


def test_an_object_store_is_written_seldom(
    job: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each write is a new file, the first is made at once, and the rest later."""
    pytest.importorskip("fsspec")
    job()
    monkeypatch.setenv("TRANSLOAD_TRACKER_BASE", "memory://reports")
    store = open_store("memory://reports")
    for step in range(5):
        report(step=step, loss=step)
    assert read_steps(store, "", "loss") == {0: 0}
    assert runtime._reports is not None
    runtime._reports.flush()
    assert read_steps(store, "", "loss") == {step: step for step in range(5)}
    assert FsspecResultTracker("memory://reports")["0"] == {"loss": 4}


def test_all_is_written_at_exit(tmp_path: Path) -> None:
    """What waits is written when the program ends."""
    program = (
        "from transload import runtime\n"
        "from transload.runtime import report\n"
        "runtime._PAUSE_S = 0.0\n"
        "[report(step=step, loss=step) for step in range(3)]\n"
    )
    env = {**os.environ, "TRANSLOAD_TRACKER_BASE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
    assert read_steps(open_store(tmp_path), "", "loss") == {0: 0, 1: 1, 2: 2}


def test_put(job: Callable[..., Path]) -> None:
    """A shell reports as Python does. Numbers are numbers, and a mistake is an error here."""
    base = job()

    def put(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "transload", "put", *words], capture_output=True, text=True
        )

    assert put("loss=0.5", "n=3", "note=a=b", "--step", "1").returncode == 0
    assert put("loss=0.25", "worst=inf").returncode == 0
    assert put("--key", "final", "x=1").returncode == 0
    found = FsspecResultTracker(base).to_dict()
    assert found == {
        "0": {"loss": 0.25, "n": 3, "note": "a=b", "worst": float("inf")},
        "final": {"x": 1},
    }
    assert read_steps(open_store(base), "", "loss") == {1: 0.5}
    kept = ("commit=12e4567", "zip=00501", "tiny=1e-999", "big=1_000", "word:str=7", "rate:float=7")
    assert put("--key", "texts", *kept, "small=1e-3", "half=.5", "gone=nan").returncode == 0
    texts = {
        "commit": "12e4567",
        "zip": "00501",
        "tiny": "1e-999",
        "big": "1_000",
        "word": "7",
        "rate": 7.0,
    }
    found = FsspecResultTracker(base)["texts"]
    assert math.isnan(float(found.pop("gone")))
    assert found == {**texts, "small": 0.001, "half": 0.5}
    assert isinstance(found["rate"], float)
    for words in (
        ("loss",),
        ("=3",),
        (":str=3",),
        ("n:int=3.5",),
        ("x=1", "--step", "nan"),
        ("x=" + "y" * 2000,),
        ("--key", "", "x=1"),
    ):
        assert put(*words).returncode == 2, words


def reporter(count: int, name: str, base: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start a process of this replica that reports a name so many times, once there is a file
    ``go``.
    """
    program = (
        "import os, sys, time\nfrom transload.runtime import report\n"
        "count, name, go, key = int(sys.argv[1]), sys.argv[2], sys.argv[3], (sys.argv[4:] or "
        "[None])[0]\n"
        "while not os.path.exists(go): time.sleep(0.001)\n"
        "for step in range(count): report(step=step, key=key, **{name: step})\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, str(count), name, str(base / "go"), *more]
    )


@pytest.mark.parametrize("key", ["0", "final"])
def test_processes_of_one_replica_meet(job: Callable[..., Path], key: str) -> None:
    """What a child reports stays, though its parent reports again. So do its other values."""
    base = job()
    report(key=key, loss=1, shared="mine")
    with reporter(1, "val_acc", base, key) as child:
        (base / "go").touch()
        assert child.wait(60) == 0
    report(key=key, loss=2)
    assert FsspecResultTracker(base)[key] == {"loss": 2, "val_acc": 0, "shared": "mine"}
    with reporter(1, "shared", base, key) as child:
        assert child.wait(60) == 0
    report(key=key, loss=3)
    assert FsspecResultTracker(base)[key] == {"loss": 3, "val_acc": 0, "shared": 0}


def test_processes_that_report_at_once(job: Callable[..., Path]) -> None:
    """Several processes lose no steps and leave no file over. Of their results the last win."""
    base = job()
    base.mkdir()
    children = [reporter(100, f"x{number}", base) for number in range(4)]
    (base / "go").touch()
    assert [child.wait(100) for child in children] == [0] * 4
    assert 99 in FsspecResultTracker(base)["0"].values()
    curves = read_curves(open_store(base))["0"]
    assert {name: len(points) for name, points in curves.items()} == {
        f"x{number}": 100 for number in range(4)
    }
    assert sorted(os.listdir(base)) == ["0.json", "0.steps.jsonl", "go"]


def test_a_process_of_a_later_attempt_begins_anew(job: Callable[..., Path]) -> None:
    """What an earlier attempt, or another job, left in the file is not taken over."""
    base = job()
    report(old=1)
    job(attempt=1)
    report(new=2)
    assert FsspecResultTracker(base)["0"] == {"new": 2}


def test_an_interruption_keeps_results_and_replaces_steps(
    job: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reported before an interruption stays, and steps done again replace the old."""
    base = job()
    report(step=1, loss=3.0, once="yes")
    report(step=2, loss=2.0)
    report(step=3, loss=1.0)
    monkeypatch.setenv("TRANSLOAD_INTERRUPTIONS", "1")
    monkeypatch.setattr(runtime, "_reports", None)
    report(step=2, loss=2.5)
    results = FsspecResultTracker(str(base))["0"]
    assert results == {"loss": 2.5, "once": "yes"}
    assert read_curves(open_store(str(base)))["0"]["loss"] == {1.0: 3.0, 2.0: 2.5}


def test_a_report_that_is_too_large_is_left_out(
    job: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reported before it and what is reported after it arrives, where little space is."""
    job()
    monkeypatch.delenv("TRANSLOAD_TRACKER_BASE")
    monkeypatch.setenv("TRANSLOAD_RESULT_FILE", str(tmp_path / "file"))
    report(loss=0.5)
    report(**{f"text{number}": "x" * 1000 for number in range(5)})
    report(accuracy=0.9)
    assert json.loads((tmp_path / "file").read_text())["results"] == {"loss": 0.5, "accuracy": 0.9}
