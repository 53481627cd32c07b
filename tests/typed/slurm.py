"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload.runner import Runner
from transload.schedulers.api import SchedulerBase
from transload_slurm.scheduler import SlurmScheduler, create_slurm

made = create_slurm("session")
assert_type(made, SlurmScheduler)
scheduler: SchedulerBase = made
assert_type(made.shares_disk, bool)
runner = Runner("session", {"slurm": create_slurm})
