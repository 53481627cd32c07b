"""How often a watch looks at the files of its apps."""

from __future__ import annotations

import pytest

from transload_slurm.watch import SlurmWatch


@pytest.mark.parametrize(
    ("apps", "files", "pause"),
    [(1, 3, (0.05, 0.1)), (200, 3, (1.0, 1.0)), (1, 1000, (1.0, 1.0))],
    ids=["one job", "many jobs", "one array of many"],
)
def test_many_files_are_looked_at_less_often(apps: int, files: int, pause: tuple[float, float]) -> None:
    """What counts is how many files there are, of many apps or of one array: looking costs about the same."""
    watch = SlurmWatch(lambda app_id: [f"/nowhere/{app_id}/{k}" for k in range(files)], lambda ids: {})
    watch.update([f"app-{number}" for number in range(apps)])
    assert len(watch.wait(0)) == apps
    for _ in range(30):
        assert watch.wait(0) == set()
    assert pause[0] <= watch._look <= pause[1]
    watch.close()
