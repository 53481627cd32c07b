"""Folders of checkpoints on a cluster are shared by name and kept as long as needed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError
from transload.runner import Runner
from transload.specs import AppDef, AppState, parse_app_handle

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


def test_prune_removes_what_no_job_names(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path
) -> None:
    """Prune removes what a broken removal has left, and keeps what a job names."""
    handle = runner.run(shell_app(COUNT.format(1), checkpoints=True), "slurm", app_id="mine")
    assert _end(runner, handle).state is AppState.SUCCEEDED
    left = slurm_dir.parent / "checkpoints" / "left" / "main"
    left.mkdir(parents=True)
    for folder in (left.parent, slurm_dir.parent / "checkpoints" / "mine"):
        os.utime(folder, (1, 1))
    assert list(runner.scheduler("slurm").prune(older_than=86400.0)) == []
    assert _kept(slurm_dir.parent / "checkpoints") == ["mine"]


def test_a_damaged_record_removes_nothing_else(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path, tmp_path: Path
) -> None:
    """A record that names another folder for checkpoints is damaged, and removes nothing."""
    handle = runner.run(shell_app(COUNT.format(1), checkpoints=True), "slurm", app_id="mine")
    assert _end(runner, handle).state is AppState.SUCCEEDED
    precious = tmp_path / "precious"
    (precious / "main").mkdir(parents=True)
    path = slurm_dir / "mine" / "record.json"
    record = json.loads(path.read_text())
    record["checkpoints"] = "../../precious"
    path.write_text(json.dumps(record))
    status = runner.status(handle)
    assert status is not None and "is damaged" in status.msg
    runner.delete(handle)
    assert (precious / "main").is_dir() and not path.exists()


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
    assert runner.scheduler("slurm").describe(["none"])["none"] is None
    Path("/dev/shm/transload-test").rmdir()


def test_a_node_that_does_not_see_the_folder(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path, eventually: Any
) -> None:
    """A node that does not see the folder, which was taken away, does not start the program."""
    app = shell_app("echo ran", checkpoints=True)
    cfg = {"begin": "now+3"}
    handle = runner.run(app, "slurm", cfg)
    app_id = parse_app_handle(handle).app_id
    (slurm_dir.parent / "checkpoints" / app_id / "main").rmdir()
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
    assert found.path.endswith("/checkpoints/there/main") and found.size
    store = scheduler.checkpoint_store("there", "main")
    assert store is not None and store.read("steps") == b"x\n"
    assert scheduler.describe(["there"])["there"].checkpoints == "there"  # type: ignore[union-attr]
    far.delete(handle)
    assert not Path(found.path).exists()
