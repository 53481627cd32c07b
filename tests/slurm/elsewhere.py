"""The suite for a cluster behind ssh, run by ``test_elsewhere.py`` where neither Slurm nor the
cluster's disk is.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

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

    def make_scheduler(self, folder: Path) -> SlurmScheduler:
        """Return a scheduler at the end of an ssh."""
        scheduler = create_slurm("suite")
        where = f"{os.environ['FAR_HOME']}/apps/{folder.name}"
        scheduler.connect(scheduler.connection.read({"ssh": "login", "folder": where}))
        return scheduler
