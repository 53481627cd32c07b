"""Checkpoints and notices, as a program uses them. Programs are real processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from transload.runtime import CheckpointError, latest_checkpoint, save_checkpoint


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for checkpoints of this process, which is not there yet."""
    place = tmp_path / "checkpoints"
    monkeypatch.setenv("TRANSLOAD_CHECKPOINT_DIR", str(place))
    for name in ("RANK", "LOCAL_RANK", "GROUP_WORLD_SIZE", "TRANSLOAD_REPLICA_ID"):
        monkeypatch.delenv(name, raising=False)
    return place


def write(text: str) -> Any:
    """Return what writes a checkpoint of one file."""
    return lambda folder: (folder / "state").write_text(text)


def test_the_last_two_are_kept(folder: Path) -> None:
    """The newest complete checkpoint is found, and older ones than the last two go."""
    assert latest_checkpoint() is None
    for text in ("one", "two", "three"):
        made = save_checkpoint(write(text))
        assert made is not None
        assert made == latest_checkpoint()
        assert (made / "state").read_text() == text
    assert sorted(os.listdir(folder)) == ["checkpoint-000002", "checkpoint-000003"]


def test_a_checkpoint_that_the_program_has_named_itself_is_found(folder: Path) -> None:
    """Some libraries write ``checkpoint-500``. What is kept after it has a higher number."""
    (folder / "checkpoint-500").mkdir(parents=True)
    assert latest_checkpoint() == folder / "checkpoint-500"
    for text in ("one", "two"):
        save_checkpoint(write(text))
    assert sorted(os.listdir(folder)) == ["checkpoint-000501", "checkpoint-000502"]


def test_outside_of_a_job_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program runs by hand."""
    monkeypatch.delenv("TRANSLOAD_CHECKPOINT_DIR", raising=False)
    assert latest_checkpoint() is None
    assert save_checkpoint(lambda _: pytest.fail("called")) is None


@pytest.mark.parametrize(
    ("env", "shared", "own"),
    [
        ({"TRANSLOAD_REPLICA_ID": "0"}, True, True),
        ({"TRANSLOAD_REPLICA_ID": "1"}, False, True),
        ({"TRANSLOAD_REPLICA_ID": "0", "RANK": "1", "LOCAL_RANK": "1"}, False, False),
        ({"TRANSLOAD_REPLICA_ID": "1", "RANK": "2", "LOCAL_RANK": "0"}, False, True),
        ({"TRANSLOAD_REPLICA_ID": "1", "RANK": "0", "LOCAL_RANK": "0"}, True, True),
        (
            {"TRANSLOAD_REPLICA_ID": "1", "RANK": "0", "LOCAL_RANK": "0", "GROUP_WORLD_SIZE": "1"},
            False,
            True,
        ),
    ],
)
def test_who_writes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], shared: bool, own: bool
) -> None:
    """One process for the whole role, or one in each replica."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert (save_checkpoint(write("x")) is not None) is shared
    assert (save_checkpoint(write("y"), each_replica=True) is not None) is own
    if own:
        place = folder / f"replica-{env['TRANSLOAD_REPLICA_ID']}" / "checkpoint-000001"
        assert latest_checkpoint(each_replica=True) == place


def test_a_write_that_fails_leaves_the_one_before(folder: Path) -> None:
    """What the program raises comes through, and nothing half written is found."""
    first = save_checkpoint(write("one"))

    def broken(folder: Path) -> None:
        (folder / "state").write_text("half")
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        save_checkpoint(broken)
    assert latest_checkpoint() == first
    assert os.listdir(folder) == ["checkpoint-000001"]


def test_a_full_disk_is_said_in_one_line(folder: Path) -> None:
    """The error names the folder and the reason, and the one before is there."""
    first = save_checkpoint(write("one"))

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(full)
    assert caught.value.errno == errno.ENOSPC
    assert str(folder) in str(caught.value)
    assert "No space left on device; those before it are kept" in str(caught.value)
    assert latest_checkpoint() == first


def test_a_folder_that_cannot_be_made_is_said_in_one_line(folder: Path) -> None:
    """So is a path that is no folder."""
    folder.write_text("a file")
    with pytest.raises(CheckpointError, match="no checkpoint was written to"):
        save_checkpoint(write("x"))
    assert latest_checkpoint() is None


def run(code: str, folder: Path, **env: str) -> subprocess.Popen[str]:
    """Start a program that says when it is ready."""
    given = {**os.environ, "TRANSLOAD_CHECKPOINT_DIR": str(folder), **env}
    program = [sys.executable, "-u", "-c", textwrap.dedent(code)]
    process = subprocess.Popen(program, env=given, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def rest(process: subprocess.Popen[str]) -> str:
    """Return what a program has written since it was ready."""
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read()
    process.wait(timeout=30)
    return said


def test_killed_while_it_writes(folder: Path) -> None:
    """A checkpoint that was not finished is never found, and the next save clears it away."""
    first = save_checkpoint(write("one"))
    code = """
        import time
        from transload.runtime import latest_checkpoint, save_checkpoint
        def write(folder):
            (folder / "state").write_text("half")
            print("ready")
            time.sleep(60)
        save_checkpoint(write)
    """
    process = run(code, folder)
    process.kill()
    process.communicate()
    assert len(os.listdir(folder)) == 2
    assert latest_checkpoint() == first
    second = save_checkpoint(write("two"))
    assert latest_checkpoint() == second
    assert sorted(os.listdir(folder)) == ["checkpoint-000001", "checkpoint-000002"]


@pytest.mark.parametrize(
    ("env", "number"),
    [({}, signal.SIGTERM), ({"TRANSLOAD_NOTICE_SIGNAL": "USR1"}, signal.SIGUSR1)],
)
def test_a_notice_is_seen_saved_and_answered(
    folder: Path, env: dict[str, str], number: signal.Signals
) -> None:
    """The program saves after the signal that it was promised, and ends with 75."""
    code = """
        import time
        from transload.runtime import (
            exit_interrupted,
            interrupted,
            latest_checkpoint,
            save_checkpoint,
        )
        assert not interrupted()
        print("ready")
        while not interrupted():
            time.sleep(0.01)
        save_checkpoint(lambda folder: (folder / "state").write_text("saved"))
        exit_interrupted()
    """
    process = run(code, folder, **env)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 75
    found = latest_checkpoint()
    assert found is not None
    assert (found / "state").read_text() == "saved"


def test_forked_children_take_no_notice(folder: Path) -> None:
    """The signal ends a forked worker as before, which would else outlive its parent."""
    code = """
        import os, signal
        from transload.runtime import interrupted
        interrupted()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.write(writer, b"x")
            signal.alarm(20)
            signal.pause()
            os._exit(3)
        os.read(reader, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        print("ready")
        print(os.waitstatus_to_exitcode(status), interrupted())
    """
    assert rest(run(code, folder)) == "-15 False\n"


def test_a_handler_that_was_there_is_called_too(folder: Path) -> None:
    """Whoever had taken the signal before goes on to get it."""
    code = """
        import os, signal
        from transload.runtime import interrupted
        signal.signal(signal.SIGTERM, lambda *_: print("mine"))
        interrupted()
        print("ready")
        os.kill(os.getpid(), signal.SIGTERM)
        print(interrupted())
    """
    assert rest(run(code, folder)) == "mine\nTrue\n"


def test_a_program_that_has_ended_its_work_is_not_ended_by_the_notice(folder: Path) -> None:
    """The signal may come while Python cleans up, when no handler of a program is called."""
    code = """
        import os, signal
        from transload.runtime import interrupted

        class Last:
            def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
                kill(pid, number)

        interrupted()
        last = Last()
        print("ready")
    """
    process = run(code, folder)
    process.communicate(timeout=30)
    assert process.returncode == 0
