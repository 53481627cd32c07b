"""A damaged job is shown, hides no other, and is ended before it is deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.runner import Runner
from transload.specs import AppDef, AppState
from transload_testing.schedulers import damage_file

ShellApp = Callable[..., AppDef]
DEEP = "[" * 100_000


def _jobs(app_id: str) -> list[str]:
    """Return the ids of the jobs that Slurm has not ended yet, by the name of the app."""
    command = ["squeue", "-h", "-o", "%i", f"--name={app_id}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _running(runner: Runner, shell_app: ShellApp, eventually: Any, app_id: str) -> str:
    """Submit a job that goes on until it is ended. Return its handle once it runs."""
    handle = runner.run(shell_app("sleep 300"), "slurm", app_id=app_id)
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, timeout=60)  # type: ignore[union-attr]
    return handle


def test_job_with_another_comment(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path, eventually: Any
) -> None:
    """A job whose comment a user has changed is known by the id that was noted, and ended."""
    handle = _running(runner, shell_app, eventually, "renamed")
    (job,) = _jobs("renamed")
    subprocess.run(["scontrol", "update", f"jobid={job}", "comment=mine"], check=True)
    damage_file(slurm_dir / "renamed" / "record.json", "deep JSON")
    runner.delete(handle)
    assert _jobs("renamed") == []


def test_cancel(runner: Runner, shell_app: ShellApp, slurm_dir: Path, eventually: Any) -> None:
    """Such a job can be cancelled, and the end that its keeper writes is shown."""
    handle = _running(runner, shell_app, eventually, "stopped")
    damage_file(slurm_dir / "stopped" / "record.json", "empty")
    runner.cancel(handle)
    eventually(lambda: _jobs("stopped") == [], timeout=60)
    assert "is damaged" in runner.status(handle).msg  # type: ignore[union-attr]


def test_job_that_cannot_be_told_from_anothers(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path, eventually: Any
) -> None:
    """Without token and id, a job of that name is named and left alone. Nothing is removed."""
    handle = _running(runner, shell_app, eventually, "doubtful")
    (job,) = _jobs("doubtful")
    for name in ("record.json", "token", "claim", "job.json"):
        (slurm_dir / "doubtful" / name).write_text("")
    with pytest.raises(SchedulerUnavailable, match=f"`scancel {job}` if it is, then try again"):
        runner.delete(handle)
    assert _jobs("doubtful") == [job] and (slurm_dir / "doubtful").is_dir()
    subprocess.run(["scancel", job], check=True)
    eventually(lambda: _jobs("doubtful") == [], timeout=60)
    runner.delete(handle)
    assert not (slurm_dir / "doubtful").exists()


def test_job_of_another_folder_goes_on(
    runner: Runner,
    shell_app: ShellApp,
    slurm_dir: Path,
    tmp_path: Path,
    eventually: Any,
    monkeypatch: Any,
) -> None:
    """Of two apps of one id, of two folders, the running one is not ended with the other's damaged
    record.
    """
    first = runner.run(shell_app("true"), "slurm", app_id="both")
    assert runner.wait(first, timeout=60) is not None
    monkeypatch.setenv("TRANSLOAD_SLURM_DIR", str(tmp_path / "elsewhere"))
    with Runner("tests") as other:
        second = _running(other, shell_app, eventually, "both")
        damage_file(slurm_dir / "both" / "record.json", "no JSON")
        runner.delete(first)
        assert not (slurm_dir / "both").exists()
        assert other.status(second).state is AppState.RUNNING  # type: ignore[union-attr]
        other.delete(second)


def test_other_files(runner: Runner, shell_app: ShellApp, slurm_dir: Path) -> None:
    """Whatever else is damaged in the folder of an app hides no other, and it can be deleted."""
    good = runner.run(shell_app("true"), "slurm", {"begin": "now+1hour"}, app_id="good")
    bad = runner.run(shell_app("true"), "slurm", app_id="bad")
    assert runner.wait(bad, timeout=60) is not None
    texts = ("", DEEP, '{"state": "RUNNING", "roles": 5, "msg": [1], "id": [2], "parts": 1}')
    for name in ("states.jsonl", "slurm.json", "job.json", "submitting", "verdict.json"):
        file = slurm_dir / "bad" / name
        before = file.read_text() if file.exists() else None
        for text in texts:
            file.write_text(text)
            with Runner("tests") as other:
                assert {row.app_handle for row in other.list("slurm")} == {good, bad}, (name, text)
                assert other.status(bad) is not None
        if before is None:
            file.unlink()
        elif name != "states.jsonl":
            file.write_text(before)
    runner.cancel(bad)
    runner.delete(bad)
    assert [row.app_handle for row in runner.list("slurm")] == [good]


@pytest.mark.parametrize("names", [("claim",), ("claim", "job.json")], ids=" ".join)
@pytest.mark.parametrize("number", ["²", "7" * 5000], ids=lambda text: text[:3])
def test_a_number_that_is_none(
    runner: Runner,
    shell_app: ShellApp,
    slurm_dir: Path,
    eventually: Any,
    names: tuple[str, ...],
    number: str,
) -> None:
    """A job may write anything in place of Slurm's number. It hides no other, and can be ended."""
    good = runner.run(shell_app("true"), "slurm", {"begin": "now+1hour"}, app_id="good")
    bad = _running(runner, shell_app, eventually, "bad")
    for name in names:
        text = json.dumps({"id": number}) if name == "job.json" else number
        (slurm_dir / "bad" / name).write_text(text)
    with Runner("tests") as other:
        assert {row.app_handle for row in other.list("slurm")} == {good, bad}
        assert other.status(bad).state is AppState.RUNNING  # type: ignore[union-attr]
        other.cancel(bad)
    eventually(lambda: _jobs("bad") == [], timeout=60)


def test_newer_record_is_left_alone(runner: Runner, shell_app: ShellApp, slurm_dir: Path) -> None:
    """A newer version's record is shown as UNKNOWN, and not deleted."""
    handle = runner.run(shell_app("true"), "slurm", app_id="newer")
    assert runner.wait(handle, timeout=60) is not None
    record = slurm_dir / "newer" / "record.json"
    text = record.read_text()
    record.write_text(json.dumps({"schema": 99}))
    assert [row.state for row in runner.list("slurm")] == [AppState.UNKNOWN]
    assert "written by a newer version" in runner.status(handle).msg  # type: ignore[union-attr]
    with pytest.raises(SchedulerUnavailable, match="newer version"):
        runner.delete(handle)
    record.write_text(text)
    assert runner.status(handle).state is AppState.SUCCEEDED  # type: ignore[union-attr]


def test_copy_of_a_folder_is_damaged(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path, eventually: Any
) -> None:
    """A copy of a job's folder under another name is UNKNOWN, and goes without the job."""
    handle = _running(runner, shell_app, eventually, "original")
    shutil.copytree(slurm_dir / "original", slurm_dir / "copy", symlinks=True)
    states = {row.app_id: row.state for row in runner.list("slurm")}
    assert states == {"original": AppState.RUNNING, "copy": AppState.UNKNOWN}
    assert runner.scheduler("slurm").delete("copy") is True
    assert not (slurm_dir / "copy").exists()
    assert runner.status(handle).state is AppState.RUNNING  # type: ignore[union-attr]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give up what lets it read everything")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not here")
def test_record_that_may_not_be_read(runner: Runner, shell_app: ShellApp, slurm_dir: Path) -> None:
    """An unreadable record makes its job UNKNOWN, which hides no other, and is not deleted."""
    good = runner.run(shell_app("true"), "slurm", app_id="good")
    bad = runner.run(shell_app("true"), "slurm", app_id="bad")
    for handle in (good, bad):
        assert runner.wait(handle, timeout=60) is not None
    (slurm_dir / "bad" / "record.json").chmod(0)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        bounded = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        command = [*bounded, sys.executable, "-m", "transload", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    listed = call("list", "-s", "slurm")
    assert listed.returncode == 0, listed.stderr
    assert "good\tSUCCEEDED" in listed.stdout and "bad\tUNKNOWN" in listed.stdout
    assert "record.json: Permission denied" in call("status", bad).stdout
    refused = call("delete", "--force", bad)
    assert refused.returncode == 3 and refused.stderr.count("\n") == 1, refused.stderr
    assert "record.json: Permission denied" in refused.stderr
    assert (slurm_dir / "bad" / "token").exists()


def test_behind_a_login_node(far: Runner, login: Any, shell_app: ShellApp, eventually: Any) -> None:
    """By ssh such a job is shown, hides no other, and is deleted after its end."""
    good = far.run(shell_app("sleep 300"), "slurm", app_id="good")
    bad = far.run(shell_app("sleep 300"), "slurm", app_id="bad")
    for handle in (good, bad):
        eventually(lambda handle=handle: far.status(handle).state is AppState.RUNNING, timeout=60)
    folder = Path(login.home, ".transload", "slurm", "apps", "bad")
    damage_file(folder / "record.json", "FIFO")
    assert {row.app_handle for row in far.list("slurm")} >= {good, bad}
    status = far.status(bad)
    assert status is not None and status.state is AppState.UNKNOWN
    assert f"its record {folder}/record.json is damaged" in status.msg
    far.delete(bad)
    assert not folder.exists()
    assert [row.app_handle for row in far.list("slurm")] == [good]
    assert far.status(good).state is AppState.RUNNING  # type: ignore[union-attr]
