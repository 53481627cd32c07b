"""The policy of the Prefect adapter passes the suite that every adapter must pass (no server takes
part).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm import Warm, warm_up

from transload_prefect.states import STATES
from transload_testing import AdapterConformance


class PrefectDriver(Warm):
    """Runs what a task run does around its app in a forked process."""

    entry = "prefect_driver:run"


class TestPrefect(AdapterConformance):
    """Every scenario that Prefect can have."""

    state_map = STATES
    unknown_state: ClassVar[object] = "CRASHED"
    cannot: ClassVar[Mapping[str, str]] = {
        "test_new_generation_waits_for_the_old_app": "a new flow run knows nothing of an earlier one: Prefect has no "
        "store that outlives a flow run",
        "test_again_while_the_old_app_does_not_end": "a new flow run knows nothing of an earlier one",
        "test_again_with_detach_waits_for_the_old_app": "a new flow run knows nothing of an earlier one",
        "test_a_try_that_is_over_touches_nothing": "a new flow run knows nothing of an earlier one",
        "test_app_vanishes_without_a_record_while_the_host_is_down": (
            "the handle that Prefect shows is a hint, which is sent a moment after the submit"
        ),
        "test_an_app_of_another_installation_is_refused_while_it_runs": "a flow run has an id of its own everywhere",
    }

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> PrefectDriver:
        """Return a driver of the adapter."""
        warm_up("prefect", "local")
        return PrefectDriver(folder, environment)
