"""What people use otherwise, in processes that are killed like those of our adapters."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from transload_testing import ChildDriver
from transload_testing.adapter_driver import HostJob

HERE = Path(__file__).parent
RIVALS: Mapping[str, tuple[str, str]] = {
    "submitit": ("submitit_job:run", "SUCCEEDED"),
    "submitit_defaults": ("submitit_job:defaults", "SUCCEEDED"),
    "submitit_training": ("submitit_training:run", "SUCCEEDED"),
    "torchx": ("torchx_trial:run", "COMPLETED"),
    "torchx_defaults": ("torchx_trial:defaults", "COMPLETED"),
}
"""Name → what is run in the child, and its word for a success."""


class Rival(ChildDriver):
    """Runs one in a process that has begun when `start` returns: a kill while it is being imported
    shows nothing.
    """

    environment: ClassVar[Mapping[str, str]] = {
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])
    }

    def start(self, app: str, job: HostJob) -> None:
        """Start it; wait for its first line."""
        super().start(app, job)
        while not (seen := self.observe()).logs and seen.alive:
            time.sleep(0.02)


def driver_of(rival: str) -> type[Rival]:
    """Return the class of a rival's driver."""
    return type(rival, (Rival,), {"entry": RIVALS[rival][0]})
