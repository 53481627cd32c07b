"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload.runner import Runner
from transload.schedulers.api import SchedulerBase
from transload_docker.scheduler import DockerScheduler, create_docker

made = create_docker("session")
assert_type(made, DockerScheduler)
scheduler: SchedulerBase = made
assert_type(made.shares_disk, bool)
runner = Runner("session", {"docker": create_docker})
