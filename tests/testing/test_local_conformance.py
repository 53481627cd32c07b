"""The local scheduler passes the suite for schedulers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from transload.runner import Runner
from transload.schedulers import SchedulerBase
from transload_testing.schedulers import Damage, SchedulerConformance, damage_file


@pytest.mark.usefixtures("transload_home")
class TestLocal(SchedulerConformance):
    """Real processes, in a state folder of the test's own."""

    image = "/tmp"
    notice_seconds = 0.5
    segment_seconds = 1.5
    stall_seconds = 0.5

    def make_scheduler(self, folder: Path) -> SchedulerBase:
        """Return a local scheduler, as any process of the user would make one."""
        return Runner("suite").scheduler("local")

    def damage_record(self, folder: Path, app_id: str, damage: Damage) -> bool:
        """Damage the file of the record."""
        damage_file(
            Path(os.environ["TRANSLOAD_HOME"], "local", "apps", app_id, "record.json"), damage
        )
        return True

    def state_folders(self, folder: Path) -> list[Path]:
        """Return the state folder, where no secret may be found."""
        return [folder, Path(os.environ["TRANSLOAD_HOME"])]
