"""Folders of checkpoints on a cluster are shared by name and kept as long as needed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import AppNotFound, ConfigError
from transload.runner import Launch, Runner
from transload.specs import AppDef, AppState, RetryPolicy, Role, parse_app_handle

ShellApp = Callable[..., AppDef]
COUNT = 'cd "$TRANSLOAD_CHECKPOINT_DIR" && echo x >> steps && [ "$(wc -l < steps)" -ge {} ]'


def _end(runner: Runner, handle: str) -> Any:
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


def _kept(folder: Path) -> list[str]:
    """Return the names under which checkpoints are kept."""
    if not folder.exists():
        return []
    return sorted(path.name for path in folder.iterdir())


def test_attempts_of_a_job_share_their_checkpoints(runner: Runner, slurm_dir: Path) -> None:
    """An attempt finds what the one before has kept. Each role that asks has its own folder."""
    again = {"max_retries": 2, "retry_policy": RetryPolicy.REPLICA, "retry_delay": 0.0}

    def role(name: str, line: str, **more: Any) -> Role:
        return Role(name, "/tmp", entrypoint="sh", args=["-c", line], **more)

    roles = [
        role("main", COUNT.format(3), checkpoints=True, **again),
        role("plain", "env | grep CHECKPOINT_DIR || true"),
    ]
    handle = runner.run(AppDef("test", roles), "slurm", app_id="mine")
    status = _end(runner, handle)
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 2), status
    assert list(runner.log_lines(handle, "plain", 0)) == []
    scheduler = runner.scheduler("slurm")
    description = scheduler.describe("mine")
    assert description is not None and description.checkpoints == "mine"
    (found,) = scheduler.checkpoints("mine")
    assert (found.role, Path(found.path)) == ("main", slurm_dir / ".checkpoints/mine/main")
    assert found.size and found.changed is not None
    assert time.time() - 90 < found.changed < time.time() + 1
    store = scheduler.checkpoint_store("mine", "main")
    assert store is not None and store.read("steps") == b"x\n" * 3
    assert scheduler.checkpoint_store("mine", "plain") is None


def test_kept_until_the_last_job_that_names_them_is_deleted(
    runner: Runner, shell_app: ShellApp, tmp_path: Path
) -> None:
    """A second job uses the folder of the first, which is removed with the last of the two."""
    base = tmp_path / "scratch"
    cfg = {"checkpoint_base": str(base)}
    first = runner.run(shell_app(COUNT.format(2), checkpoints=True), "slurm", cfg, app_id="first")
    assert _end(runner, first).state is AppState.FAILED
    launch = Launch(app=shell_app(COUNT.format(2)), checkpoints=first, scheduler="slurm", cfg=cfg)
    second = runner.run(launch, app_id="second")
    assert _end(runner, second).state is AppState.SUCCEEDED
    runner.delete(first)
    assert _kept(base) == ["first"]
    runner.delete(second)
    assert _kept(base) == []
    with pytest.raises(AppNotFound):
        runner.scheduler("slurm").checkpoints("second")


def test_prune_removes_what_no_job_names(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path
) -> None:
    """Prune removes what a broken removal has left, and keeps what a job names."""
    handle = runner.run(shell_app(COUNT.format(1), checkpoints=True), "slurm", app_id="mine")
    assert _end(runner, handle).state is AppState.SUCCEEDED
    left = slurm_dir / ".checkpoints" / "left" / "main"
    left.mkdir(parents=True)
    for folder in (left.parent, slurm_dir / ".checkpoints" / "mine"):
        os.utime(folder, (1, 1))
    assert list(runner.scheduler("slurm").prune(older_than=86400.0)) == []
    assert _kept(slurm_dir / ".checkpoints") == ["mine"]


def test_a_damaged_record_removes_nothing_else(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path, tmp_path: Path
) -> None:
    """A record whose folder is not that of its own checkpoints is damaged, and removes nothing."""
    handle = runner.run(shell_app(COUNT.format(1), checkpoints=True), "slurm", app_id="mine")
    assert _end(runner, handle).state is AppState.SUCCEEDED
    precious = tmp_path / "precious"
    precious.mkdir()
    path = slurm_dir / "mine" / "record.json"
    record = json.loads(path.read_text())
    record["checkpoint_folders"]["main"] = str(precious)
    path.write_text(json.dumps(record))
    status = runner.status(handle)
    assert status is not None and "is damaged" in status.msg
    runner.delete(handle)
    assert precious.is_dir() and not path.exists()


def test_places_that_are_none(runner: Runner, shell_app: ShellApp, tmp_path: Path) -> None:
    """Memory of this machine, and what cannot be written, are refused by name. Nothing runs."""
    app = shell_app("true", checkpoints=True)
    (tmp_path / "file").write_text("in the way")
    for base, words in (
        ("/dev/shm/transload-test", "memory, which no node sees"),
        (str(tmp_path / "file"), "cannot be written"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            runner.run(app, "slurm", {"checkpoint_base": base}, app_id="none")
        assert "-c checkpoint_base=FOLDER" in str(caught.value)
    assert not Path("/dev/shm/transload-test/none").exists()
    assert runner.scheduler("slurm").describe("none") is None
    Path("/dev/shm/transload-test").rmdir()


def test_a_node_that_does_not_see_the_folder(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path, eventually: Any
) -> None:
    """A node that does not see the folder, which was taken away, does not start the program."""
    app = shell_app("echo ran", checkpoints=True)
    cfg = {"begin": "now+3"}
    handle = runner.run(app, "slurm", cfg)
    app_id = parse_app_handle(handle).app_id
    (slurm_dir / ".checkpoints" / app_id / "main").rmdir()
    status = _end(runner, handle)
    assert status.state is AppState.FAILED
    logs = "".join(runner.log_lines(handle, "main", 0))
    assert "not on this node: name a shared folder (-c checkpoint_base=FOLDER)" in logs


def test_checkpoints_behind_a_login_node(far: Runner, shell_app: ShellApp) -> None:
    """They lie on the cluster, are described and read from here, and go with the job."""
    handle = far.run(shell_app(COUNT.format(1), checkpoints=True), "slurm", app_id="there")
    status = _end(far, handle)
    assert status.state is AppState.SUCCEEDED, status
    scheduler = far.scheduler("slurm")
    (found,) = scheduler.checkpoints("there")
    assert found.path.endswith("/.checkpoints/there/main") and found.size
    store = scheduler.checkpoint_store("there", "main")
    assert store is not None and store.read("steps") == b"x\n"
    assert scheduler.describe("there").checkpoints == "there"  # type: ignore[union-attr]
    far.delete(handle)
    assert not Path(found.path).exists()
