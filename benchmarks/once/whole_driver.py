"""A host without servers (Ax, the launcher of Kubeflow Pipelines): a process for each unit; engines
are struck, too.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import harness
from whole import FROZEN_S, WholeHost

from transload_testing.adapter_driver import HostJob, Observed

RETRIES = 3
"""What ends a job, such as a killed dockerd, is answered by the scheduler: Ax tries no trial
again."""


class Host(WholeHost):
    """See the module."""

    tools = ("transload",)
    victims = ("process",)

    def __init__(self, folder: Path, engine: str, name: str) -> None:
        super().__init__(folder, engine, name)
        if name not in harness.ASKING:  # that is how a person cancels there
            self.no_strikes = (("process", "term"),)
        self._make, self.success = harness.made_by(name)
        self._drivers: list[Any] = []

    def start(self) -> None:
        """Nothing is started before the units."""

    def begin(self, tool: str, unit: str, ledger: Path) -> Any:
        """Start the unit's process."""
        driver = self._make(self.folder / unit)
        self._drivers.append(driver)
        app = harness.app_of(ledger, unit, self.engine, RETRIES)
        driver.start(app, HostJob(name=unit, scheduler=self.engine))
        return driver

    def strike(self, victim: str, way: str, chance: random.Random) -> None:
        """Strike half of the processes; a killed one is started again by `look`, as its host's
        supervisor would.
        """
        there = [each for each in self._drivers if each.observe().alive]
        chosen = chance.sample(there, (len(there) + 1) // 2)
        if way == "freeze":
            harness.freeze([each._process for each in chosen], FROZEN_S)
            return
        for driver in chosen:
            if way == "term":
                harness.terminate(driver)
            driver.crash()

    def look(self, tool: str, run: Any) -> Observed:
        """Look at what its processes reported; one that ended without a word, or whose host tries
        again, goes on.
        """
        seen: Observed = run.observe()
        if (seen.state is None and not seen.alive) or (
            seen.state not in (None, self.success) and seen.retryable
        ):
            run.restart()
            return Observed(alive=True)
        return seen

    def stop(self) -> None:
        """End all processes."""
        for driver in self._drivers:
            driver.close()
