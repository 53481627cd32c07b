"""Folders of checkpoints are shared by name and kept, and refused where there is none."""

from __future__ import annotations

import json
import os
import time

import pytest

from transload.errors import AppNotFound, SubmitError
from transload.specs import AppState, RetryPolicy

COUNT = 'cd "$TRANSLOAD_CHECKPOINT_DIR"; echo x >> steps; [ "$(wc -l < steps)" -ge "$0" ]'


def role(local, steps: int, **fields: object):
    """Return a role that ends well in the attempt in which its checkpoints have so many steps."""
    return local.sh(COUNT.replace("$0", str(steps)), checkpoints=True, **fields)


def test_attempts_of_a_job_share_their_checkpoints(local) -> None:
    """An attempt finds what the one before has kept. Another role has a folder of its own."""
    again = {"max_retries": 2, "retry_policy": RetryPolicy.REPLICA, "retry_delay": 0.0}
    other = local.sh("touch $TRANSLOAD_CHECKPOINT_DIR/mine", "other", checkpoints=True)
    app_id = local.run(local.app(role(local, 3, **again), other), checkpoints="job")
    status = local.wait(app_id)
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 2)
    assert local.scheduler.describe(app_id).checkpoints == "job"
    first, second = local.scheduler.checkpoints(app_id)
    assert (first.role, second.role) == ("main", "other")
    assert first.size > 0
    assert time.time() - 60 < first.changed < time.time() + 1
    store = local.scheduler.checkpoint_store(app_id, "main")
    assert store.read("steps") == b"x\n" * 3
    assert local.scheduler.checkpoint_store(app_id, "none") is None


def test_kept_until_the_last_job_that_names_them_is_deleted(local) -> None:
    """Two jobs of one name find the same folder, which goes with the second one."""
    first = local.run(role(local, 2), checkpoints="shared")
    assert local.wait(first).state is AppState.FAILED
    second = local.run(role(local, 2), checkpoints="shared")
    assert local.wait(second).state is AppState.SUCCEEDED
    folder = local.home / "local" / "checkpoints" / "shared"
    local.scheduler.delete(first)
    assert (folder / "main" / "steps").read_text() == "x\nx\n"
    local.scheduler.delete(second)
    assert not folder.exists()
    with pytest.raises(AppNotFound):
        local.scheduler.checkpoints(second)


def test_a_running_job_keeps_its_checkpoints(local, eventually) -> None:
    """The delete of an ended job takes nothing from the one that goes on with its checkpoints."""
    first = local.run(role(local, 1), checkpoints="shared")
    local.wait(first)
    fifo_script = "cat $TRANSLOAD_CHECKPOINT_DIR/steps; echo up; sleep 300"
    second = local.run(local.sh(fifo_script, checkpoints=True), checkpoints="shared")
    local.line(second, "up")
    local.scheduler.prune(older_than=0.0)
    assert local.scheduler.describe(first) is None
    assert (local.home / "local/checkpoints/shared/main/steps").exists()


def test_prune_removes_checkpoints_that_nobody_names(local) -> None:
    """What a broken-off removal left is removed after a day, and what a job names stays."""
    app_id = local.run(role(local, 1), checkpoints="used")
    local.wait(app_id)
    folder = local.home / "local" / "checkpoints"
    for name in ("left", "fresh", ".gone.1.2"):
        (folder / name / "main").mkdir(parents=True)
    for name in ("left", "used", ".gone.1.2"):
        os.utime(folder / name, (1, time.time() - 2 * 86400))
    local.scheduler.prune(older_than=3600.0)
    assert sorted(path.name for path in folder.iterdir()) == ["fresh", "used"]


@pytest.mark.parametrize("name", ["..", "../apps", "/tmp", "", 5])
def test_a_record_that_names_another_folder(local, name: object) -> None:
    """A record in which a job has put another folder is damaged, and removes nothing else."""
    other = local.run(local.sh("true"))
    local.wait(other)
    app_id = local.run(role(local, 1), checkpoints="job")
    local.wait(app_id)
    record = local.folder(app_id) / "record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "checkpoints": name}))
    assert "is damaged" in local.status(app_id).msg
    local.scheduler.delete(app_id)
    assert local.scheduler.describe(app_id) is None
    assert local.status(other).state is AppState.SUCCEEDED


def test_who_does_not_ask_has_no_folder(local) -> None:
    """A job without checkpoints makes nothing, and its record does not speak of them."""
    app_id = local.run(local.sh("env"))
    assert local.wait(app_id).state is AppState.SUCCEEDED
    assert not any("CHECKPOINT" in line for line in local.log(app_id))
    assert "checkpoints" not in {path.name for path in (local.home / "local").iterdir()}
    assert local.scheduler.describe(app_id).checkpoints is None
    assert local.scheduler.checkpoints(app_id) == []


def test_no_room_for_checkpoints(local) -> None:
    """Where the folder cannot be made, the submit is refused and says so. Nothing was started."""
    local.wait(local.run(local.sh("true")))
    (local.home / "local" / "checkpoints").write_text("in the way")
    with pytest.raises(SubmitError, match="cannot keep checkpoints in .*checkpoints"):
        local.run(role(local, 1), app_id="none", checkpoints="job")
    assert local.scheduler.describe("none") is None
