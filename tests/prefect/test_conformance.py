"""The policy of the Prefect adapter passes the suite that every adapter must pass (no server takes
part).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from transload_prefect.states import STATES
from transload_testing import AdapterConformance, ChildDriver


class PrefectDriver(ChildDriver):
    """Runs what a task run does around its app in a child process."""

    entry = "prefect_driver:run"
    environment: ClassVar[Mapping[str, str]] = {
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parent), *(path for path in sys.path if path)]
        )
    }


class TestPrefect(AdapterConformance):
    """Every scenario that Prefect can have."""

    state_map = STATES
    unknown_state: ClassVar[object] = "CRASHED"
    cannot: ClassVar[Mapping[str, str]] = {
        "test_new_generation_waits_for_the_old_app": "a new flow run knows nothing of an earlier one: Prefect has no "
        "store that outlives a flow run",
    }

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> PrefectDriver:
        """Return a driver of the adapter."""
        return PrefectDriver(folder, environment)
