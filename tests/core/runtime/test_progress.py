"""A program reports by ``progress`` how far it is."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from transload.keeper.signs import read_report


def said(tmp_path: Path, code: str, **env: str) -> tuple[dict[str, Any], str]:
    """Return what a program has reported, as a keeper reads it, and its stderr."""
    file = tmp_path / "progress.json"
    given = {**os.environ, "TRANSLOAD_PROGRESS_FILE": str(file), **env}
    text = "from transload.runtime import progress\n" + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", text], env=given, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) in ([], ["progress.json"])
    data = file.read_bytes() if file.exists() else b""
    return read_report(data, 0.0), done.stderr


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("step=400, total=1000", {"step": 400, "total": 1000, "fraction": 0.4}),
        ("fraction=0.25, text='epoch  3'", {"fraction": 0.25, "text": "epoch 3"}),
        ("step=1200, total=1000", {"step": 1200, "total": 1000, "fraction": 1.0}),
        ("step=3", {"step": 3}),
        ("text='warming up'", {"text": "warming up"}),
    ],
)
def test_what_is_said_is_read(tmp_path: Path, call: str, found: dict[str, Any]) -> None:
    """A keeper reads what the program said, though it has ended at once."""
    report, err = said(tmp_path, f"progress({call})")
    assert report == {**found, "at": 0.0}
    assert err == ""


@pytest.mark.parametrize(
    ("call", "warning"),
    [
        ("step=5, fraction=1.4", "fraction=1.4: must be 0 to 1"),
        ("step=5, fraction=float('nan')", "fraction=nan: must be a finite number"),
        ("step=5, total=10**310", "must be a finite number"),
        ("step=5, total=0", "total=0: must be above 0"),
        ("step=5, total='many'", "total='many': must be a finite number"),
        ("step=5, total=True", "total=True: must be a finite number"),
    ],
)
def test_what_makes_no_sense_is_left_out(tmp_path: Path, call: str, warning: str) -> None:
    """It is said once, and the program goes on with the rest."""
    report, err = said(tmp_path, f"for _ in range(3): progress({call})")
    assert report == {"step": 5, "at": 0.0}
    assert err.count(warning) == 1


def test_it_is_cheap_and_the_last_word_counts(tmp_path: Path) -> None:
    """Of a hundred thousand calls few are written, and the last one when the program ends."""
    report, _ = said(
        tmp_path,
        """
        import os, time
        writes = []
        replace = os.replace
        os.replace = lambda *names: (writes.append(1), replace(*names))
        began = time.monotonic()
        for step in range(20_001):
            progress(step=step, total=20_000)
        assert len(writes) <= 2 + time.monotonic() - began, len(writes)
        """,
    )
    assert report["step"] == 20_000
    assert report["fraction"] == 1.0


def test_outside_of_a_job_nothing_happens(tmp_path: Path) -> None:
    """Nothing is written, and nothing said."""
    report, err = said(tmp_path, "progress(step=1)", TRANSLOAD_PROGRESS_FILE="")
    assert (report, err) == ({}, "")


def test_of_the_processes_of_torchrun_the_first_speaks(tmp_path: Path) -> None:
    """Ranks do not overwrite each other's words."""
    assert said(tmp_path, "progress(step=1)", LOCAL_RANK="1")[0] == {}
    assert said(tmp_path, "progress(step=1)", LOCAL_RANK="0")[0]["step"] == 1


def test_a_place_that_cannot_be_written_ends_no_program(tmp_path: Path) -> None:
    """It is one warning, however often progress is reported."""
    code = "for step in range(1000): progress(step=step)"
    missing = "/dev/null/progress"
    report, err = said(tmp_path, code, TRANSLOAD_PROGRESS_FILE=missing)
    assert report == {}
    assert err.count("progress was not reported") == 1


def test_two_processes_that_report(tmp_path: Path) -> None:
    """Whoever speaks last is heard, and what is read is always whole."""
    code = """
        import os, sys
        for number in range(2):
            if not os.fork():
                for step in range(200):
                    progress(step=step, text="x" * 150)
                    from transload import runtime
                    runtime._progress._due = 0.0
                sys.exit(0)
        path = os.environ["TRANSLOAD_PROGRESS_FILE"]
        import json
        living = 2
        while living:
            if os.path.exists(path):
                json.loads(open(path).read())
            if os.waitpid(-1, os.WNOHANG)[0]:
                living -= 1
    """
    report, _ = said(tmp_path, code)
    assert report["step"] == 199


def test_a_forked_child_that_ends_reports_nothing(tmp_path: Path) -> None:
    """What its parent has not written yet is the parent's alone."""
    code = """
        import os, sys
        progress(step=1)
        progress(step=2)
        if not os.fork():
            sys.exit(0)
        os.wait()
        import json
        assert json.loads(open(os.environ["TRANSLOAD_PROGRESS_FILE"]).read())["step"] == 1
    """
    report, err = said(tmp_path, code)
    assert (report["step"], err) == (2, "")
