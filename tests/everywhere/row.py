"""What the hosts of the table share: the job, the engines to run it on, and how a cell is told."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from job import ARGUMENTS, COMPONENT

__all__ = ["ARGUMENTS", "COMPONENT", "ENGINES", "EXAMPLE", "TESTS", "Cell"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "everywhere"
TESTS = Path(__file__).resolve().parents[1]
ENGINES = os.environ["EVERYWHERE_ENGINES"].split()
signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that servers are stopped on the way out


class Cell:
    """One host on one engine.

    Args:
        host: the host.
        engine: where the job runs.
    """

    def __init__(self, host: str, engine: str) -> None:
        self._said: dict[str, object] = {"host": host, "engine": engine}
        self._began = time.monotonic()

    def emit(self, handle: str, state: str, host_state: str, accuracy: float, log: str | None) -> None:
        """Print the cell as a line of stdout.

        Args:
            handle: of the app.
            state: how the app ended.
            host_state: what the host itself says of its unit of work.
            accuracy: as the host hands it on.
            log: what the host shows of the app's lines; None where the host shows none.
        """
        lines = None if log is None else sum("epoch" in line and "loss" in line for line in log.splitlines())
        seconds = round(time.monotonic() - self._began, 1)
        told = {"handle": handle, "state": state, "said": host_state, "accuracy": accuracy, "lines": lines}
        print(json.dumps({**self._said, **told, "seconds": seconds}), flush=True)
