"""The suite for a cluster behind ssh, run by ``test_elsewhere.py`` where neither Slurm nor the
cluster's disk is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from transload_slurm import SlurmScheduler, create_slurm
from transload_testing import SchedulerConformance


def test_nothing_of_the_cluster_is_here() -> None:
    """No tool of Slurm's, no controller's file, no home of the login node."""
    assert [
        name
        for name in ("sbatch", "squeue", "scancel", "scontrol", "srun", "sinfo")
        if shutil.which(name)
    ] == []
    assert "SLURM_CONF" not in os.environ
    for folder in os.environ["NOT_HERE"].split(":"):
        assert list(Path(folder).iterdir()) == []


class TestBySsh(SchedulerConformance):
    """Slurm keeps the contract by ssh."""

    image = "/tmp"
    timeout = 60.0
    longest_pause = 0.25  # each question is a process
    inherits_environment = False
    proven_elsewhere: ClassVar[Sequence[str]] = (
        "transload_testing.scheduler_refusals",
        "test_75_without_a_notice_is_a_failure",
        "test_death_by_signal",
        "test_environment_counts_failures_and_interruptions_apart",
        "test_exit_code",
        "test_macros",
        "test_min_replicas",
        "test_one_replica_fails_all_end",
        "test_out_of_memory_is_named",
        "test_progress_that_makes_no_sense",
        "test_retries",
        "test_retries_used_up",
        "test_retry_delay",
        "test_segment",
        "test_timeout",
        "test_usage",
        "test_what_does_not_heed_its_notice_is_killed",
    )
    """Tests of what happens on the cluster alone, which quick runs leave out."""

    def make_scheduler(self, folder: Path) -> SlurmScheduler:
        """Return a scheduler at the end of an ssh."""
        scheduler = create_slurm("suite")
        scheduler.connect(
            {"ssh": "login", "folder": f"{os.environ['FAR_HOME']}/apps/{folder.name}"}
        )
        return scheduler
