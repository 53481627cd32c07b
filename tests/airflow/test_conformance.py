"""The adapter passes the suite that every adapter must pass, waiting in the task and waiting in a
trigger.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from transload_airflow.states import STATES
from transload_testing import AdapterConformance

sys.path.insert(0, str(Path(__file__).parent))

from airflow_driver import AirflowDriver

CANNOT: Final = {
    "test_app_vanishes_without_a_record_while_the_host_is_down": (
        "a task that is killed before Airflow has its handle leaves no trace of a job that its "
        "scheduler has forgotten altogether"
    ),
}


class TestSync(AdapterConformance):
    """Every scenario, waiting in the task's process."""

    state_map = STATES
    cannot: ClassVar[Mapping[str, str]] = CANNOT

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> AirflowDriver:
        """Return a driver that does not defer."""
        return AirflowDriver(folder, environment, deferrable=False)


class TestDeferrable(AdapterConformance):
    """Every scenario, waiting in a trigger."""

    state_map = STATES
    cannot: ClassVar[Mapping[str, str]] = CANNOT

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> AirflowDriver:
        """Return a driver that defers."""
        return AirflowDriver(folder, environment, deferrable=True)
