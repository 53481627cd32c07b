"""One flow that submits a task for each unit; one server; a thread waits for each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class Host:
    """A Prefect server, and flows in this process."""

    def __init__(self, folder: Path, engine: str) -> None:
        os.environ |= {
            "PREFECT_HOME": str(folder / "prefect"),
            "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        self._engine = engine

    def start(self) -> None:
        """Start the server."""
        from prefect.testing.utilities import prefect_test_harness

        self._harness: Any = prefect_test_harness(server_startup_timeout=240)
        self._harness.__enter__()

    def many(self, number: int, units: int) -> int:
        """Run so many; return how many ended well, each with its own result."""
        from prefect import flow

        from transload_prefect import app_task

        path, engine = Path(__file__).with_name("units.py"), self._engine

        @flow(name="load")
        def load() -> list[float]:
            unit = app_task(f"{path}:unit", name="unit", scheduler=engine)
            futures = [unit.submit(number=float(k)) for k in range(units)]
            return [each.result().value("number") for each in futures]

        return sum(value == k for k, value in enumerate(load()))

    def stop(self) -> None:
        """End the server."""
        self._harness.__exit__(None, None, None)
