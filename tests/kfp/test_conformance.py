"""The launcher passes the suite that every adapter must pass, as far as a host without a store
can.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm import Warm, warm_up

from transload_kfp.states import STATES
from transload_kfp.step import NODE
from transload_testing import AdapterConformance


class KfpDriver(Warm):
    """Runs one launcher in a forked process, whose backend counts its tries."""

    entry = "kfp_driver:run"

    def restart(self) -> None:
        """Start the task's next try, or its pod again, which counts no try."""
        tries = 0
        if self._run >= 0:
            tries = self._tries + (self.observe().state is not None)
        self._tries = tries
        self._environment[NODE] = f"run(0).root(0).task(0).executor({tries})"
        super().restart()


class TestKfp(AdapterConformance):
    """Every scenario, on the launcher."""

    state_map = STATES
    unknown_state = "RUNTIME_STATE_UNSPECIFIED"
    cannot: ClassVar[Mapping[str, str]] = {
        "test_new_generation_waits_for_the_old_app": "a new run has a job of its own, and knows of no other",
        "test_again_while_the_old_app_does_not_end": "a new run has a job of its own, and knows of no other",
        "test_again_with_detach_waits_for_the_old_app": "a new run has a job of its own, and knows of no other",
        "test_a_try_that_is_over_touches_nothing": "a new run has a job of its own, and knows of no other",
        "test_an_app_of_another_installation_is_refused_while_it_runs": "a run has an id of its own everywhere",
        "test_app_vanishes_without_a_record_while_the_host_is_down": (
            "a task keeps nothing of its own between two tries: what left no record never was"
        ),
        "test_restart_while_being_cancelled": "what somebody cancelled stays cancelled when the pod is started again",
    }

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> KfpDriver:
        """Return a driver of the launcher."""
        warm_up("kfp", "local")
        return KfpDriver(folder, environment)
