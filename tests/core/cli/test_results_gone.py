"""Results that cannot be read any more are an error, and a job that reported nothing is none."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from transload.errors import AppNotFound
from transload.runner import get_runner
from transload.runtime.tracking import ResultsGone, TrackingError

_REPORT = ("--", sys.executable, "-m", "transload", "put", "loss=1")
_HANDLE = "local://transload/job"


def _place(app_id: str = "job") -> Path:
    with get_runner() as runner:
        found = runner.job(f"local://transload/{app_id}").description()
    assert found is not None and found.tracker_base is not None
    return Path(found.tracker_base)


def _own(base: str | None) -> Sequence[str]:
    return () if base is None else ("--tracker-base", base)


@pytest.mark.parametrize("base", [None, "runs", "~/runs"])
@pytest.mark.parametrize("reports", [True, False])
def test_a_folder_that_was_removed(
    invoke: Any, base: str | None, reports: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell whether something was reported once its folder is gone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    command = _REPORT if reports else ("--", "true")
    assert invoke("run", *_own(base), "--app-id", "job", *command).code == 0
    before = invoke("results", "job", "--json")
    assert before.code == 0 and bool(before.json["results"]) is reports
    shutil.rmtree(_place())
    for command in (("results",), ("results", "--json"), ("results", "--value", "loss")):
        said = invoke(command[0], "job", *command[1:])
        assert said.code != 0 and str(_place()) in said.err and not said.out
    assert str(_place()) in invoke("get", "job").err
    with get_runner() as runner:
        job = runner.job(_HANDLE)
        for ask in (job.results, job.steps, job.fetch):
            with pytest.raises(ResultsGone, match=str(_place())):
                ask()


@pytest.mark.parametrize("words", [(), ("--tail", "3"), ("--stream", "stderr"), ("-f",)])
def test_a_log_that_was_removed(invoke: Any, words: Sequence[str]) -> None:
    """A log whose files were swept away is not empty, and one without a line is."""
    assert invoke("run", "--app-id", "silent", "--", "true").code == 0
    assert invoke("run", "--app-id", "job", "--", "echo", "hello").code == 0
    shutil.rmtree(_place().parent / "logs")
    said = invoke("log", *words, "job")
    assert said.code != 0 and str(_place().parent / "logs") in said.err and not said.out
    assert invoke("log", *words, "silent").code == 0


def test_a_job_that_was_deleted(invoke: Any) -> None:
    """A job that is gone has no empty results."""
    assert invoke("run", "--app-id", "job", *_REPORT).code == 0
    assert invoke("delete", "job").code == 0
    said = invoke("results", _HANDLE)
    assert said.code != 0 and _HANDLE in said.err
    with get_runner() as runner, pytest.raises(AppNotFound):
        runner.results(_HANDLE)


def test_a_record_that_is_damaged(invoke: Any) -> None:
    """Where the record does not say any more where the results are, they are not empty."""
    assert invoke("run", "--app-id", "job", *_REPORT).code == 0
    record = _place().parent / "record.json"
    record.write_text("{", encoding="utf-8")
    said = invoke("results", "job")
    assert said.code != 0 and str(record) in said.err
    with get_runner() as runner, pytest.raises(TrackingError, match=str(record)):
        runner.results(_HANDLE)


def test_a_job_that_runs(invoke: Any, tmp_path: Path) -> None:
    """What has not ended has reported nothing yet, and lost nothing."""
    go = tmp_path / "go"
    waits = ("sh", "-c", f"until test -e {go}; do sleep 0.1; done")
    assert invoke("run", "-d", "--app-id", "job", "--", *waits).code == 0
    said = invoke("results", "job")
    assert said.code == 0 and "reported nothing" in said.err
    go.touch()
    assert invoke("wait", "job").code == 0
