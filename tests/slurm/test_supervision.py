"""A job comes to a known end, whatever it does to its files, folder or submit."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from transload.errors import SubmitError
from transload.runner import Runner
from transload.specs import AppDef, AppState, RetryPolicy, parse_app_handle
from transload_slurm import remote
from transload_slurm.job import agent
from transload_slurm.job.starts import Start

KINDS: Final = {"fifo": 'mkfifo "$1"', "folder": 'mkdir "$1" && touch "$1/inside"'}
FILES: Final = "stdout.log stderr.log index error.json ../../../states.jsonl ../../../batch.log"


def hostile(kind: str, then: str, files: str = FILES) -> str:
    """Return a line of shell that puts something else in the place of files of the job's."""
    replace = f'replace() {{ rm -rf "$1"; {KINDS[kind]}; }}'
    return f'cd "$(dirname "$TRANSLOAD_ERROR_FILE")"; {replace}; for f in {files}; do replace "$f"; done; {then}'


def alive(pid: int) -> bool:
    """Tell whether a process lives (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] not in (b"Z", b"X")


def test_files_that_the_job_replaced(
    runner: Runner, shell_app: Callable[..., AppDef], tmp_path: Path, eventually: Any
) -> None:
    """With a FIFO or a folder in the place of each file, a cancel and a limit end the job, and its
    end is told.
    """
    handles = {}
    for kind in KINDS:
        done = tmp_path / f"{kind}.done"
        command = hostile(kind, f"touch {done}; sleep 300")
        handles[kind] = (
            runner.run(shell_app(command), "slurm"),
            runner.run(shell_app(command, timeout=3.0), "slurm"),
        )
        eventually(done.exists, 60)
    for kind, (cancelled, limited) in handles.items():
        assert next(runner.log_lines(cancelled, "main")).startswith("transload: stdout.log"), kind
        runner.cancel(cancelled)
        status = runner.wait(cancelled, timeout=60)
        assert status is not None and status.state is AppState.CANCELLED, kind
        status = runner.wait(limited, timeout=60)
        assert status is not None and status.state is AppState.FAILED, kind
        assert "timed out after 3 s" in status.msg


def test_retry_after_the_job_replaced_its_log(
    runner: Runner, shell_app: Callable[..., AppDef], tmp_path: Path, eventually: Any
) -> None:
    """A next attempt that cannot write its log fails, and names the file that is in the way."""
    for kind in KINDS:
        command = hostile(kind, "exit 1", "stdout.log stderr.log index error.json")
        app = shell_app(
            command, max_retries=1, retry_policy=RetryPolicy.APPLICATION, retry_delay=0.0
        )
        status = runner.wait(runner.run(app, "slurm"), timeout=60)
        assert status is not None and status.state is AppState.FAILED, kind
        assert "stdout.log" in status.msg and "it is not a regular file any more" in status.msg


@pytest.mark.slow
def test_removed_folder_ends_the_job(
    runner: Runner,
    cluster: Any,
    shell_app: Callable[..., AppDef],
    slurm_dir: Path,
    tmp_path: Path,
    eventually: Any,
) -> None:
    """Removing the folder of a job ends its processes, and frees its place in the queue."""
    handle = runner.run(shell_app(f"echo $$ > {tmp_path}/pid; sleep 300"), "slurm")
    pid = int(
        eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 60)
    )
    folder = slurm_dir / parse_app_handle(handle).app_id

    def removed() -> bool:
        """Remove it, again if something was just written into it."""
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    eventually(removed)
    eventually(lambda: not alive(pid), 60)
    eventually(lambda: "test" not in cluster.tool("squeue", "-h", "-o", "%j"), 60)
    assert runner.status(handle) is None


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A start of a job in a folder like that of all apps."""
    root = tmp_path / "root"
    (root / agent.MADE_FIRST).mkdir(parents=True)
    (root / "job").mkdir()
    made = Start(str(root / "job"), 0, str(root))
    made.enter()
    return made


def test_only_proof_ends_a_start(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start has ended only if it is missing twice from a readable folder.

    Errors prove nothing.
    """
    monkeypatch.setattr(agent, "LOOK_S", 0.0)
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    assert not start.replaced()
    root.rename(elsewhere)  # as if its disk were away
    assert not start.replaced() and not start.replaced()
    root.mkdir()  # the place where it is mounted
    assert not start.replaced() and not start.replaced()
    root.rmdir()
    elsewhere.rename(root)
    shutil.rmtree(root / "job")
    for number in (errno.ESTALE, errno.EIO, errno.EACCES):

        def fail(path: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number), path)

        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", fail)
            assert not start.replaced() and not start.replaced()
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", fail)
            assert not start.replaced() and not start.replaced()
    assert start.replaced()


def test_one_look_is_no_proof(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two looks lie seconds, and one at which the folder is there counts them anew."""
    moment = 1000.0
    monkeypatch.setattr(agent.time, "monotonic", lambda: moment)
    mine, aside = Path(start.mine), tmp_path / "aside"
    mine.rename(aside)
    assert not start.replaced()
    moment += agent.LOOK_S - 1
    assert not start.replaced()
    aside.rename(mine)
    assert not start.replaced()
    mine.rename(aside)
    moment += agent.LOOK_S
    assert not start.replaced()
    moment += agent.LOOK_S
    assert start.replaced()


def test_newer_start_is_proof(start: Start) -> None:
    """A newer start's folder in the place of the own one says at once that Slurm has begun anew."""
    assert Start(start.place, 1, os.path.dirname(start.place)).enter()
    assert start.replaced()


def test_submit_that_gave_up_is_withdrawn(
    far: Runner,
    login: Any,
    shell_app: Callable[..., AppDef],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A helper on the login node that was stopped does not submit, once it goes on, what its client
    has given up.
    """
    monkeypatch.setattr("transload_slurm.remote._SUBMIT_S", 1.0)
    monkeypatch.setattr("transload_slurm.remote._AGAIN_S", 1.0)
    monkeypatch.setitem(remote._SECONDS, "withdraw", 0.5)
    scheduler = far.scheduler("slurm")
    connection = scheduler.login_node.connection  # type: ignore[attr-defined]
    pid = connection.link().hello["pid"]
    ran = tmp_path / "ran"
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(SubmitError, match="it will not be any more"):
            far.run(shell_app(f"echo once >> {ran}"), "slurm", app_id="late")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert connection.call("list") == []  # the helper goes on, and reads what it was sent
    handle = far.run(shell_app(f"echo again >> {ran}"), "slurm", app_id="late")
    status = far.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    assert ran.read_text() == "again\n"
    assert len(connection.call("list")) == 1


def test_sbatch_that_answers_too_late_is_taken_back(
    far: Runner,
    login: Any,
    shell_app: Callable[..., AppDef],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Slurm took after its submitter had given up is ended, and its id is free."""
    monkeypatch.setattr("transload_slurm.remote._SUBMIT_S", 1.0)
    monkeypatch.setattr("transload_slurm.remote._AGAIN_S", 1.0)
    monkeypatch.setitem(remote._SECONDS, "withdraw", 0.0)  # nobody could be reached
    ran, slow = tmp_path / "ran", login.tools / "sbatch"
    slow.write_text('#!/bin/sh\nsleep 4\nexec /usr/bin/sbatch --begin=now+5 "$@"\n')
    slow.chmod(0o755)
    try:
        with pytest.raises(SubmitError, match="it will not be any more"):
            far.run(shell_app(f"echo once >> {ran}"), "slurm", app_id="later")
        connection = far.scheduler("slurm").login_node.connection  # type: ignore[attr-defined]
        deadline = time.monotonic() + 60
        while any(row.app_id == "later" for row in connection.call("list")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        slow.unlink()
    assert not ran.exists()
