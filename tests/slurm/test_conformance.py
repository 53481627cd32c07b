"""The suite that every scheduler must pass, on a real cluster of three nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from transload_slurm import SlurmScheduler, create_slurm
from transload_testing.schedulers import Damage, SchedulerConformance, damage_file


@pytest.mark.usefixtures("cluster", "slurm_dir")
class TestSlurm(SchedulerConformance):
    """Slurm keeps the contract."""

    image = "/tmp"
    timeout = 60.0
    longest_pause = 0.25  # each question is a process

    def make_scheduler(self, folder: Path) -> SlurmScheduler:
        """Return a scheduler of the test's own folder of apps."""
        scheduler = create_slurm("suite")
        # a mount takes run option container, so that without it the suite looks for a refusal
        scheduler.mounts = frozenset()
        return scheduler

    def damage_record(self, folder: Path, app_id: str, damage: Damage) -> bool:
        """Damage the file of the record."""
        damage_file(Path(os.environ["TRANSLOAD_SLURM_DIR"], "apps", app_id, "record.json"), damage)
        return True
