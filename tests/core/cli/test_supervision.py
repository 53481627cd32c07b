"""A job is looked after, whatever it does to its files and whenever it is stopped."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import pytest

from transload.cli import main
from transload.errors import SchedulerUnavailable
from transload.runner import get_runner
from transload.specs import AppDef, Role

_SOON_S: Final = 20.0
"""No command that is tried here has to wait for more than the end of a process."""

KINDS: Final = {
    "fifo": 'mkfifo "$1"',
    "folder": 'mkdir "$1" && touch "$1/inside"',
    "endless": 'ln -s /dev/zero "$1"',
    "link to a fifo": 'mkfifo "$1.fifo" && ln -s "$1.fifo" "$1"',
    "huge": 'truncate -s 4T "$1"',
}
"""What a job puts in the place of a file."""

REPLACED: Final = (
    "stdout.log stderr.log index error.json ../../../states.jsonl ../../../keeper.log ../../../end"
)


def transload(*args: str, code: int | None = 0, patience: float = _SOON_S) -> str:
    """Run the command line, and return its stdout. It may not take long."""
    out = io.StringIO()
    err = io.StringIO()
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended_with = main(list(args))
    assert time.monotonic() - began < patience
    assert "Traceback" not in err.getvalue()
    assert code is None or ended_with == code, err.getvalue()
    return out.getvalue()


def hostile(kind: str, files: str = REPLACED, then: str = "sleep 300") -> list[str]:
    """Return a command that puts something else in the place of files beside its log, and then goes
    on.
    """
    replace = f'replace() {{ rm -rf "$1"; {KINDS[kind]}; }}'
    script = f'cd "$(dirname "$TRANSLOAD_ERROR_FILE")"; {replace}; for f in {files}; do replace "$f"; done; {then}'
    return ["--", "sh", "-c", script]


def wait_for(home: Path, app_id: str, kind: str, eventually: Any) -> None:
    """Wait until a hostile job has done its work."""
    last = home / "local" / "apps" / app_id / REPLACED.split()[-1].rpartition("/")[2]
    eventually(lambda: last.is_symlink() or last.exists(), timeout=_SOON_S)
    if kind != "huge":
        eventually(lambda: not (last.is_file() and last.stat().st_size == 0), timeout=_SOON_S)


def status_of(app_id: str, code: int | None = None) -> Any:
    """Return what `transload status --json` says."""
    return json.loads(transload("status", app_id, "--json", code=code))["status"]


@pytest.mark.parametrize("kind", KINDS)
def test_cancel_of_a_job_that_replaced_its_files(
    transload_home: Path, eventually: Any, kind: str
) -> None:
    """A job with a FIFO, folder, link or huge file in place of each file can be cancelled."""
    transload("run", "-d", "--app-id", "job", *hostile(kind))
    wait_for(transload_home, "job", kind, eventually)
    if kind != "huge":  # which takes its time
        transload("log", "job", code=None)
    transload("cancel", "job")
    transload("wait", "job", "--timeout", "15", code=4)
    found = status_of("job")
    assert found["state"] == "CANCELLED"
    assert found["msg"].startswith("cancelled on request")
    assert found["roles"][0]["replicas"][0]["exit_code"] in (
        -15,
        143,
    )  # of a shell that waits for another process
    transload("delete", "job")


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_limit_of_a_job_that_replaced_its_files(transload_home: Path, kind: str) -> None:
    """Its time limit ends it, whatever lies where its keeper writes."""
    transload("run", "-d", "--app-id", "job", "--time-limit", "1s", *hostile(kind))
    transload("wait", "job", "--timeout", "15", code=1)
    assert "timed out after 1 s" in status_of("job")["msg"]


@pytest.mark.parametrize("kind", ["fifo", "folder", "endless", "huge"])
def test_retry_of_a_job_that_replaced_its_files(transload_home: Path, kind: str) -> None:
    """The next attempt runs, or says which file is in the way, and never waits for a reader."""
    command = hostile(kind, "stdout.log error.json", then='exit "$((1 - TRANSLOAD_RETRY))"')
    transload("run", "-d", "--app-id", "job", "--retries", "1", "--retry-delay", "0s", *command)
    transload("wait", "job", "--timeout", "15", code=0 if kind == "huge" else 1)
    if kind != "huge":
        message = status_of("job")["msg"]
        assert "stdout.log: it is not a regular file any more" in message


@pytest.mark.parametrize("kind", ["fifo", "folder", "endless"])
def test_cancel_where_the_job_replaced_what_a_cancel_needs(
    transload_home: Path, eventually: Any, kind: str
) -> None:
    """What stands in the place of a cancel's request is a request. Asking again never hangs."""
    transload("run", "-d", "--app-id", "job", *hostile(kind, "../../../cancel"))
    transload("cancel", "job")
    transload("wait", "job", "--timeout", "15", code=4)
    transload("cancel", "job")
    assert status_of("job")["state"] == "CANCELLED"


def test_cancel_without_the_keepers_pid(transload_home: Path, eventually: Any) -> None:
    """A job that hides who keeps it, or names somebody else, is cancelled all the same."""
    forged = ['rm "$1"', 'echo \'{"keeper": "x"}\' > "$1"', 'echo \'{"keeper": [1, 2]}\' > "$1"']
    for number, script in enumerate(forged):
        states = "../../../states.jsonl"
        command = (
            f'set -- "$(dirname "$TRANSLOAD_ERROR_FILE")/{states}"; {script}; echo done; sleep 300'
        )
        transload("run", "-d", "--app-id", f"job-{number}", "--", "sh", "-c", command)
        eventually(lambda name=f"job-{number}": "done" in transload("log", name))
        transload("cancel", f"job-{number}")
        transload("wait", f"job-{number}", "--timeout", "15", code=4)


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_a_replaced_log_stops_nobody_elses(
    transload_home: Path, eventually: Any, kind: str
) -> None:
    """One thread follows all logs, and what a job does to its log holds up no other's."""
    transload("run", "-d", "--app-id", "bad", *hostile(kind))
    wait_for(transload_home, "bad", kind, eventually)
    lines: list[str] = []
    with get_runner("test") as runner:
        good = AppDef(
            "good", [Role("main", "", entrypoint="sh", args=["-c", "sleep 1; echo one; echo two"])]
        )
        bad = threading.Thread(
            target=lambda: list(runner.log_lines("local://transload/bad", "main", should_tail=True))
        )
        bad.start()
        handle = runner.run(good)
        follow = threading.Thread(
            target=lambda: lines.extend(runner.log_lines(handle, "main", should_tail=True))
        )
        follow.start()
        follow.join(_SOON_S)
        transload("cancel", "bad")
        bad.join(_SOON_S)
        assert not bad.is_alive()
        assert not follow.is_alive()
    assert lines == ["one\n", "two\n"]


def alive(pid: int) -> bool:
    """Tell whether a process lives (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] not in (b"Z", b"X")


def running(app_id: str, eventually: Any) -> int:
    """Submit a job with a process in another session, and return that one's pid."""
    transload(
        "run",
        "-d",
        "--app-id",
        app_id,
        "--",
        "sh",
        "-c",
        "setsid sh -c 'echo $$; exec sleep 300' & sleep 300",
    )
    return int(eventually(lambda: transload("log", app_id, "--no-prefix").strip()))


@pytest.mark.parametrize("what", ["job", "apps", "home"])
def test_removed_folder_ends_the_job(transload_home: Path, eventually: Any, what: str) -> None:
    """Removing the folder of a job, of all jobs, or the home ends the job."""
    pid = running("job", eventually)
    local = transload_home / "local"
    folder = {"job": local / "apps" / "job", "apps": local / "apps", "home": transload_home}[what]

    def removed() -> bool:
        """Remove it, again if something was just written into it."""
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    eventually(removed)
    eventually(lambda: not alive(pid), timeout=_SOON_S)
    transload_home.mkdir(mode=0o700, exist_ok=True)
    assert json.loads(transload("list", "--json"))["apps"] == []


def test_folder_that_is_not_gone_ends_no_job(transload_home: Path, eventually: Any) -> None:
    """A job whose folder was moved, or lost files, goes on, and can be cancelled."""
    pid = running("job", eventually)
    folder = transload_home / "local" / "apps" / "job"
    elsewhere = transload_home / "elsewhere"
    folder.rename(elsewhere)
    second = running("second", eventually)  # a moment in which the first one's keeper could end it
    assert alive(pid)
    elsewhere.rename(folder)
    for name in ("record.json", "states.jsonl"):
        (folder / name).unlink()
    transload("cancel", "second")
    transload("wait", "second", "--timeout", "15", code=4)
    assert alive(pid)
    assert not alive(second)
    transload("cancel", "job")
    eventually(lambda: not alive(pid), timeout=_SOON_S)
    eventually(lambda: status_of("job")["state"] == "CANCELLED", timeout=_SOON_S)


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """Return a program in the place of Python that stops before it begins, and notes its pid."""
    program = tmp_path / "python"
    program.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\n"
        f'kill -STOP $$\nexec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return program


def never_ran(mark: Path, app_id: str) -> None:
    """Check that a job did not run, after another one that was submitted behind it has."""
    transload("run", "--app-id", "next", "--", "true")
    assert not mark.exists()
    assert app_id not in [app["app_id"] for app in json.loads(transload("list", "--json"))["apps"]]
    transload("run", "--app-id", app_id, "--", "touch", str(mark))  # the id is free, too
    assert mark.exists()


_CLIENT = """
import sys
from transload.cli import main
sys.executable = sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""


def test_interrupted_submit_is_withdrawn(
    transload_home: Path, silent: Path, tmp_path: Path, eventually: Any
) -> None:
    """A submit interrupted by Ctrl-C does not run when the answer could come at last."""
    mark = tmp_path / "ran"
    words = ["run", "-d", "--app-id", "late", "--", "touch", str(mark)]
    with subprocess.Popen([sys.executable, "-c", _CLIENT, str(silent), *words]) as process:
        eventually(lambda: (tmp_path / "pid").exists(), timeout=_SOON_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(_SOON_S) != 0
    assert not alive(int((tmp_path / "pid").read_text()))
    never_ran(mark, "late")


def test_submit_that_gave_up_is_withdrawn(
    transload_home: Path, silent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submit that was refused for want of an answer does not run later, as who did not answer is
    ended.
    """
    mark = tmp_path / "ran"
    app = AppDef("late", [Role("main", "", entrypoint="touch", args=[str(mark)])])
    with (
        monkeypatch.context() as patch,
        get_runner("transload") as runner,
        pytest.raises(SchedulerUnavailable, match="does not answer"),
    ):
        patch.setattr("transload.schedulers.folder.start._ANSWER_S", 1.0)
        patch.setattr(sys, "executable", str(silent))
        runner.run(app, app_id="late")
    assert not alive(int((tmp_path / "pid").read_text()))
    never_ran(mark, "late")


_LEADERLESS = """
import ctypes, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(300,)).start()
print("up", flush=True)
ctypes.CDLL(None).syscall(60, 0)  # the first thread ends, alone
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of a system call")
def test_program_whose_first_thread_ends_before_the_others(
    transload_home: Path, eventually: Any
) -> None:
    """A program whose first thread has ended is no zombie, and is cancelled as a whole."""
    transload(
        "run",
        "-d",
        "--app-id",
        "job",
        "--notice",
        "1s",
        "--",
        sys.executable,
        "-c",
        _LEADERLESS,
    )
    eventually(lambda: "up" in transload("log", "job"), timeout=_SOON_S)
    transload("cancel", "job")
    transload("wait", "job", "--timeout", "15", code=4)
    replica = status_of("job")["roles"][0]["replicas"][0]
    assert replica["exit_code"] == -9
    assert replica["end_time"] >= replica["start_time"]


def test_every_end_has_a_time(transload_home: Path, eventually: Any) -> None:
    """Every end has a time, whether cancelled, lost, over the limit, or never started."""
    jobs = {"cancelled": (), "killed": (), "limited": ("--time-limit", "1s")}
    for name, options in jobs.items():
        transload(
            "run", "-d", "--app-id", name, *options, "--retries", "1", "--", "sh", "-c", "sleep 300"
        )
    transload("cancel", "cancelled")
    lock = str(transload_home / "local" / "apps" / "killed" / "record.json")
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and any(
                os.readlink(each) == lock for each in (entry / "fd").iterdir()
            ):
                os.kill(int(entry.name), signal.SIGKILL)
    for name in jobs:
        transload("wait", name, "--timeout", "15", code=None)
        status = status_of(name)
        assert status["state"] in ("CANCELLED", "FAILED")
        ends = [replica["end_time"] for role in status["roles"] for replica in role["replicas"]]
        assert all(ends), name


@pytest.mark.parametrize("first", ["run", "doctor"])
def test_whoever_comes_first_makes_a_private_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """With an open umask all folders that are made are the user's alone. The next submit runs."""
    state = tmp_path / "a" / "b"
    monkeypatch.delenv("TRANSLOAD_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    before = os.umask(0o002)
    try:
        words = {"run": ("run", "--", "true"), "doctor": ("doctor",)}[first]
        transload(*words, code=None, patience=90)
        assert state.exists() is (first != "doctor")
        transload("run", "--", "true")
    finally:
        os.umask(before)
    folders = [tmp_path / "a", *(path for path in (tmp_path / "a").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_doctor_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only looks leaves nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TRANSLOAD_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    shown = json.loads(transload("doctor", "--json", code=None, patience=90))["checks"]
    assert [row["status"] for row in shown if row["name"] == "local: jobs"] == ["ok"]
    assert list(tmp_path.iterdir()) == []
