"""The adapter passes the suite that every adapter must pass, waiting in the task and waiting in a
trigger.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from transload_airflow.states import STATES
from transload_testing import AdapterConformance

sys.path.insert(0, str(Path(__file__).parent))

from airflow_driver import AirflowDriver


class TestSync(AdapterConformance):
    """Every scenario, waiting in the task's process."""

    state_map = STATES

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> AirflowDriver:
        """Return a driver that does not defer."""
        return AirflowDriver(folder, environment, deferrable=False)


class TestDeferrable(AdapterConformance):
    """Every scenario, waiting in a trigger."""

    state_map = STATES

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> AirflowDriver:
        """Return a driver that defers."""
        return AirflowDriver(folder, environment, deferrable=True)
