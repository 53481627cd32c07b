"""Only what a job has made is ever removed on its behalf."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from transload.errors import ConfigError, SchedulerUnavailable, SubmitError
from transload.runner import Runner
from transload.specs import AppDef, AppState

ShellApp = Callable[..., AppDef]


@pytest.fixture
def proj(tmp_path: Path) -> Path:
    """A user's folder ``proj`` with a file ``proj/thesis/precious.txt``."""
    (tmp_path / "proj" / "thesis").mkdir(parents=True)
    (tmp_path / "proj" / "thesis" / "precious.txt").write_text("years of work")
    return tmp_path / "proj"


def test_folder_of_a_user_below_job_dir_is_not_taken(
    runner: Runner, shell_app: ShellApp, proj: Path
) -> None:
    """A job id that names a folder of the user's in ``job_dir`` is refused, and the folder stays
    as it was.
    """
    with pytest.raises(
        ConfigError, match=f"job_dir={proj}: {proj}/thesis is there already"
    ) as caught:
        runner.run(shell_app("true"), "slurm", {"job_dir": str(proj)}, app_id="thesis")
    assert "\n" not in str(caught.value)
    assert runner.status("slurm://tests/thesis") is None
    runner.scheduler("slurm").delete("thesis")
    assert [path.name for path in proj.rglob("*")] == ["thesis", "precious.txt"]


def test_empty_folder_of_a_user_is_not_taken(
    runner: Runner, shell_app: ShellApp, proj: Path
) -> None:
    """Neither an empty folder is taken, nor a link to one."""
    (proj / "empty").mkdir()
    (proj / "link").symlink_to("thesis")
    for name in ("empty", "link"):
        with pytest.raises(ConfigError, match="is there already"):
            runner.run(shell_app("true"), "slurm", {"job_dir": str(proj)}, app_id=name)
    assert (proj / "empty").is_dir()
    assert (proj / "link" / "precious.txt").exists()


def test_refused_submit_takes_back_its_own_folder_only(
    runner: Runner, shell_app: ShellApp, proj: Path
) -> None:
    """What ``sbatch`` refuses leaves nothing in ``job_dir``, and takes nothing from it."""
    cfg = {"job_dir": str(proj), "partition": "nope"}
    with pytest.raises(SubmitError, match="invalid partition"):
        runner.run(shell_app("true"), "slurm", cfg, app_id="other")
    assert sorted(path.name for path in proj.iterdir()) == ["thesis"]
    assert (proj / "thesis" / "precious.txt").exists()


def test_two_state_folders_with_one_job_dir(
    runner: Runner, shell_app: ShellApp, proj: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two apps of one id, known to two state folders, the second may not write into the folder
    of the first.
    """
    cfg = {"job_dir": str(proj)}
    first = runner.run(shell_app("echo mine"), "slurm", cfg, app_id="twin")
    status = runner.wait(first, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    monkeypatch.setenv("TRANSLOAD_SLURM_DIR", str(tmp_path / "elsewhere"))
    with Runner("tests") as other:
        with pytest.raises(ConfigError, match="is there already"):
            other.run(shell_app("echo yours"), "slurm", cfg, app_id="twin")
        other.scheduler("slurm").delete("twin")
    assert list(runner.log_lines(first, "main")) == ["mine\n"]
    runner.delete(first)
    assert not (proj / "twin").exists()
    assert (proj / "thesis" / "precious.txt").exists()


def test_folder_that_has_changed_hands_stays(
    runner: Runner, shell_app: ShellApp, proj: Path
) -> None:
    """A user's folder in the place of the app's, which was moved away, is not removed with the
    app.
    """
    handle = runner.run(shell_app("true"), "slurm", {"job_dir": str(proj)}, app_id="moved")
    assert runner.wait(handle, timeout=60) is not None
    os.rename(proj / "moved", proj / "kept")
    (proj / "moved").mkdir()
    (proj / "moved" / "note.txt").write_text("mine")
    runner.delete(handle)
    assert (proj / "moved" / "note.txt").read_text() == "mine"
    assert (proj / "kept" / "logs").is_dir()


def test_folder_of_a_user_in_the_state_folder_stays(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path
) -> None:
    """What lies beside the jobs, though it holds a ``record.json``, is neither listed nor removed."""
    home = slurm_dir.parent
    (home / "notes").mkdir(parents=True)
    home.chmod(0o700)
    (home / "notes" / "record.json").write_text('{"songs": 12}')
    assert [row.app_handle for row in runner.list("slurm")] == []
    handle = runner.run(shell_app("true"), "slurm", app_id="notes")
    assert runner.wait(handle, timeout=60) is not None
    runner.delete(handle)
    assert (home / "notes" / "record.json").exists()


_CRASHING = """
import os, sys
from transload.runner import Runner
from transload.specs import AppDef
from transload_slurm import store
rename = os.rename
os.rename = lambda old, new: os._exit(9) if new.startswith(sys.argv[2]) else rename(old, new)
with open(sys.argv[1]) as file:
    app = AppDef.from_json(file.read())
Runner("tests").run(app, "slurm", {"job_dir": sys.argv[2]}, app_id="crash")
"""


def test_submitter_dies_before_its_mark(
    runner: Runner, shell_app: ShellApp, proj: Path, tmp_path: Path
) -> None:
    """Killed between the folder in ``job_dir`` and the mark in it, a submit is finished by the next
    one.
    """
    app = shell_app("echo hello")
    (tmp_path / "app.json").write_text(app.to_json())
    command = [sys.executable, "-c", _CRASHING, str(tmp_path / "app.json"), str(proj)]
    assert subprocess.run(command, check=False, env=dict(os.environ)).returncode == 9
    handle = runner.run(app, "slurm", {"job_dir": str(proj)}, app_id="crash")
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    assert (proj / "crash" / "logs" / "main" / "0" / "stdout.log").read_text() == "hello\n"


def test_job_dir_that_is_the_state_folder(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path
) -> None:
    """``job_dir`` may name the folder of the jobs itself, so that nothing lies elsewhere."""
    handle = runner.run(
        shell_app("echo hello"), "slurm", {"job_dir": str(slurm_dir)}, app_id="same"
    )
    assert runner.wait(handle, timeout=60) is not None
    assert list(runner.log_lines(handle, "main")) == ["hello\n"]
    runner.delete(handle)
    assert not (slurm_dir / "same").exists()


@pytest.mark.parametrize("name", ["back\\slash", "two\\\\ 100%j", "end\\", "100%j"])
def test_state_folder_with_an_odd_name(
    runner: Runner, shell_app: ShellApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Backslashes, and what looks like a pattern of Slurm's, in the folder of the apps are a name
    like others.
    """
    monkeypatch.setenv("TRANSLOAD_SLURM_DIR", str(tmp_path / name))
    with Runner("tests") as other:
        handle = other.run(shell_app("echo hello"), "slurm", app_id="odd")
        status = other.wait(handle, timeout=60)
        assert status is not None and status.state is AppState.SUCCEEDED, status
        assert (tmp_path / name / "apps" / "odd" / "batch.log").is_file()
        assert list(other.log_lines(handle, "main")) == ["hello\n"]
        other.delete(handle)


def test_folder_of_another_user(runner: Runner, shell_app: ShellApp) -> None:
    """Who may not look into the folder of the apps is told so in one line."""
    runner.wait(runner.run(shell_app("true"), "slurm"), timeout=60)
    os.seteuid(65534)
    try:
        with pytest.raises(
            SchedulerUnavailable, match="cannot read .*: Permission denied"
        ) as caught:
            runner.list("slurm")
    finally:
        os.seteuid(0)
    assert "\n" not in str(caught.value)


def test_prune(runner: Runner, shell_app: ShellApp, proj: Path, slurm_dir: Path) -> None:
    """Ended jobs are deleted by age and by size, oldest first, with their ``job_dir``.

    Others stay.
    """
    for name in ("first", "second", "third"):
        handle = runner.run(
            shell_app("head -c 2000000 /dev/zero"), "slurm", {"job_dir": str(proj)}, app_id=name
        )
        assert runner.wait(handle, timeout=60) is not None
    runner.run(
        shell_app("true"), "slurm", {"begin": "now+1hour", "job_dir": str(proj)}, app_id="waits"
    )
    scheduler = runner.scheduler("slurm")
    for age, name in enumerate(("third", "second", "first")):
        at = time.time() - 3600 * (age + 1)
        os.utime(slurm_dir / name / "states.jsonl", (at, at))
    assert scheduler.prune(older_than=86400) == []
    assert scheduler.prune() == []
    assert scheduler.prune(older_than=3600 * 2.5, dry_run=True) == ["first"]
    assert (proj / "first" / "logs").is_dir()
    assert scheduler.prune(older_than=3600 * 2.5) == ["first"]
    assert not (proj / "first").exists()
    assert scheduler.prune(max_size=3_000_000) == ["second"]
    assert scheduler.prune(max_size=3_000_000) == []
    assert sorted(path.name for path in proj.iterdir()) == ["thesis", "third", "waits"]
    assert scheduler.prune(older_than=0, now=time.time() + 10) == ["third"]
    assert scheduler.existed("waits") and scheduler.existed("first")


def test_keep_days(runner: Runner, shell_app: ShellApp, slurm_dir: Path) -> None:
    """With the option, a submit removes what has ended long ago, once a day, and nothing else."""
    for name in ("old", "new"):
        assert (
            runner.wait(runner.run(shell_app("true"), "slurm", app_id=name), timeout=60) is not None
        )
    at = time.time() - 86400 * 2
    os.utime(slurm_dir / "old" / "states.jsonl", (at, at))
    with pytest.raises(ConfigError, match=r"keep_days=0\.0: must be more than 0"):
        runner.run(shell_app("true"), "slurm", {"keep_days": 0.0})
    runner.run(shell_app("true"), "slurm", {"begin": "now+1hour", "keep_days": 1.0}, app_id="waits")
    assert sorted(path.name for path in slurm_dir.iterdir()) == ["new", "waits"]
    os.utime(slurm_dir / "new" / "states.jsonl", (at, at))
    runner.run(shell_app("true"), "slurm", {"begin": "now+1hour", "keep_days": 1.0})
    assert (slurm_dir / "new").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        '{"app_id": "bad"}',
        '{"app_id": "bad", "app": 5, "created": "x", "roles": [1]}',
    ],
)
def test_damaged_record_hides_no_other(runner: Runner, shell_app: ShellApp, text: str) -> None:
    """A job with a damaged record is UNKNOWN, and all other jobs are listed. It can be deleted."""
    handle = runner.run(shell_app("true"), "slurm", app_id="good")
    root = Path(runner.scheduler("slurm").home)  # type: ignore[attr-defined]
    (root / "apps" / "bad").mkdir()
    (root / "apps" / "bad" / "record.json").write_text(text)
    states = {row.app_id: row.state for row in runner.list("slurm")}
    assert states.pop("bad") is AppState.UNKNOWN and list(states) == ["good"]
    runner.delete("slurm://tests/bad")
    assert runner.status("slurm://tests/bad") is None
    runner.wait(handle, timeout=60)
