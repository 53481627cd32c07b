"""A task of a flow on a real Prefect server."""

from __future__ import annotations

import os
import time

os.environ |= {
    "PREFECT_HOME": os.environ["TRANSLOAD_HOME"] + "/prefect",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}

import row
from prefect.testing.utilities import prefect_test_harness

with prefect_test_harness(server_startup_timeout=180):
    from prefect_flow import everywhere

    began = time.monotonic()
    state = everywhere(return_state=True)
    results, seconds = state.result(), time.monotonic() - began
    row.emit("Prefect", results.handle, results.state.name, state.name, results.value("accuracy", "final"), seconds)
