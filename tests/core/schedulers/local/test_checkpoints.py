"""Folders of checkpoints are shared by name and kept, and refused where there is none."""

from __future__ import annotations

import json
import os
import time

import pytest

from transload.errors import SubmitError
from transload.specs import AppState

COUNT = 'cd "$TRANSLOAD_CHECKPOINT_DIR"; echo x >> steps; [ "$(wc -l < steps)" -ge "$0" ]'


def role(local, steps: int, **fields: object):
    """Return a role that ends well in the attempt in which its checkpoints have so many steps."""
    return local.sh(COUNT.replace("$0", str(steps)), checkpoints=True, **fields)


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


@pytest.mark.parametrize("name", ["../apps", "/tmp", 5])
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
    assert local.scheduler.describe([app_id])[app_id] is None
    assert local.status(other).state is AppState.SUCCEEDED


def test_no_room_for_checkpoints(local) -> None:
    """Where the folder cannot be made, the submit is refused and says so. Nothing was started."""
    local.wait(local.run(local.sh("true")))
    (local.home / "local" / "checkpoints").write_text("in the way")
    with pytest.raises(SubmitError, match="cannot keep checkpoints in .*checkpoints"):
        local.run(role(local, 1), app_id="none", checkpoints="job")
    assert local.scheduler.describe(["none"])["none"] is None
