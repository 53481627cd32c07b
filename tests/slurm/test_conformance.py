"""The suite that every scheduler must pass, on a real cluster of three nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from transload.specs import CfgVal, RetryPolicy
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
        return create_slurm("suite")

    def damage_record(self, folder: Path, app_id: str, damage: Damage) -> bool:
        """Damage the file of the record."""
        damage_file(Path(os.environ["TRANSLOAD_SLURM_DIR"], app_id, "record.json"), damage)
        return True


@pytest.mark.usefixtures("cluster", "slurm_dir")
class TestArrays(SchedulerConformance):
    """So it does where replicas are elements of an array, as far as those can."""

    image = "/tmp"
    timeout = 60.0
    longest_pause = 0.25  # each question is a process
    cfg: ClassVar[Mapping[str, CfgVal]] = {"gang": False}
    cannot: ClassVar[Mapping[str, str]] = {
        "test_macros": "replica 0 of an array may not have started when another does: no ${rank0_env}",
    }
    proven_elsewhere: ClassVar[Sequence[str]] = (
        "transload_testing.scheduler_identity",
        "transload_testing.scheduler_logs",
        "transload_testing.scheduler_refusals",
    )
    """Tests of what is the same for a job of one piece, which quick runs leave out."""

    def make_scheduler(self, folder: Path) -> SlurmScheduler:
        """Return a scheduler that says what an array can."""
        scheduler = create_slurm("suite")
        only = frozenset({RetryPolicy.REPLICA})
        scheduler.capabilities = scheduler.capabilities._replace(
            roles=False, gangs=False, retries=only
        )
        return scheduler
