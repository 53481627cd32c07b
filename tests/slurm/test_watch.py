"""How often a watch looks at the files of its apps, and what it hears from Slurm meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from transload.errors import SchedulerUnavailable
from transload.schedulers import Changes
from transload_slurm.watch import SlurmWatch


@pytest.mark.parametrize(
    ("apps", "files", "pause"),
    [(1, 3, (0.05, 0.1)), (200, 3, (1.0, 1.0)), (1, 1000, (1.0, 1.0))],
    ids=["one job", "many jobs", "one array of many"],
)
def test_many_files_are_looked_at_less_often(
    apps: int, files: int, pause: tuple[float, float]
) -> None:
    """The pause grows with the number of files, so that looking costs about the same."""
    changes = Changes()
    watch = SlurmWatch(
        lambda app_id: [f"/nowhere/{app_id}/{k}" for k in range(files)],
        lambda ids: {},
        changes.add,
    )
    watch.update([f"app-{number}" for number in range(apps)])
    for _ in range(30):
        assert watch._changes() == set()
    assert pause[0] <= watch._look <= pause[1]
    watch.close()


def test_slow_slurm_holds_up_no_news(tmp_path: Path) -> None:
    """What a keeper writes is reported while Slurm is slow, and so is Slurm's later answer."""
    slow, words, asked = threading.Event(), {"a": "PENDING"}, threading.Event()

    def ask(ids: Collection[str]) -> dict[str, str]:
        if not words:
            raise SchedulerUnavailable("squeue did not answer")
        said = dict(words)
        asked.set()
        assert slow.wait(30)
        return said

    changes = Changes()
    watch = SlurmWatch(lambda app_id: [f"{tmp_path}/{app_id}"], ask, changes.add)
    watch.update(["a"])
    assert changes.wait(0.5) == set()
    assert asked.is_set()
    (tmp_path / "a").touch()
    assert changes.wait(5) == {"a"}
    slow.set()
    assert changes.wait(0.5) == set()  # the first word is no change
    words["a"] = "RUNNING"
    assert changes.wait(10) == {"a"}
    words.clear()
    assert changes.wait(10) == {"a"}
    watch.close()
