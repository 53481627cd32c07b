"""Results that cannot be read any more are an error, here and behind ssh."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import AppNotFound, SubmitError
from transload.runner import Runner
from transload.runtime.tracking import ResultsGone, TrackingError
from transload.specs import AppDef, AppState

ShellApp = Callable[..., AppDef]

_BODY = '{"schema": 1, "key": "0", "results": {"x": 1}}'
_REPORT = f"printf %s '{_BODY}' > \"$TRANSLOAD_TRACKER_BASE/0.json\""


def _ended(runner: Runner, app: AppDef, where: str, folder: Path) -> str:
    """Run a job that keeps its results somewhere, and return its handle once it has succeeded."""
    cfg = {"job_dir": str(folder)} if where == "job_dir" else {}
    base = str(folder) if where == "tracker_base" else None
    handle = runner.run(app, "slurm", cfg, tracker_base=base)
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED, status
    return handle


def _base(runner: Runner, handle: str) -> str:
    found = runner.job(handle).description()
    assert found is not None and found.tracker_base is not None
    return found.tracker_base


@pytest.mark.parametrize("where", ["own", "tracker_base"])
def test_a_folder_that_was_cleared_away(
    runner: Runner, shell_app: ShellApp, where: str, tmp_path: Path
) -> None:
    """Scratch disks are swept. A job that reported nothing is told from one whose folder is gone."""
    silent = _ended(runner, shell_app("true"), where, tmp_path / "silent")
    assert runner.results(silent).results == {}
    handle = _ended(runner, shell_app(_REPORT), where, tmp_path / "scratch")
    assert runner.results(handle).value("x") == 1
    shutil.rmtree(_base(runner, handle) if where == "own" else tmp_path / "scratch")
    with pytest.raises(ResultsGone, match=_base(runner, handle)):
        runner.results(handle)


def test_a_folder_that_was_cleared_away_on_the_cluster(
    far: Runner, login: Any, shell_app: ShellApp
) -> None:
    """Behind ssh the login node says whether the folder is there."""
    place = login.home / "scratch"
    silent = _ended(far, shell_app("true"), "job_dir", place / "silent")
    assert far.results(silent).results == {}
    handle = _ended(far, shell_app(_REPORT), "job_dir", place / "job")
    assert far.results(handle).value("x") == 1
    shutil.rmtree(place)
    with pytest.raises(ResultsGone, match=_base(far, handle)):
        far.results(handle)


def test_a_job_folder_that_was_removed(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path
) -> None:
    """Without its folder there is no such job, and without its record nobody knows its results."""
    handle = _ended(runner, shell_app(_REPORT), "own", slurm_dir)
    record = slurm_dir / handle.rpartition("/")[2] / "record.json"
    kept = record.read_text()
    record.write_text("{")
    with pytest.raises(TrackingError, match=str(record)):
        runner.results(handle)
    record.write_text(kept)
    shutil.rmtree(record.parent)
    with pytest.raises(AppNotFound):
        runner.results(handle)


def test_a_base_that_cannot_be_made(runner: Runner, shell_app: ShellApp, tmp_path: Path) -> None:
    """A base where no folder can be is refused before anything is submitted."""
    (tmp_path / "file").touch()
    with pytest.raises(SubmitError, match=f"{tmp_path}/file/runs"):
        runner.run(shell_app("true"), "slurm", tracker_base=f"{tmp_path}/file/runs")
    assert runner.list("slurm") == []
