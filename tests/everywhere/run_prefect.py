"""Tasks of flows on a real Prefect server."""

from __future__ import annotations

import os
import time

os.environ |= {
    "PREFECT_HOME": os.environ["TRANSLOAD_HOME"] + "/prefect",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}

from prefect import flow, get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.runtime import flow_run
from prefect.testing.utilities import prefect_test_harness
from row import ARGUMENTS, COMPONENT, ENGINES, Cell

from transload.runner import AppResults
from transload_prefect import app_task


@flow(name="everywhere")
def everywhere(engine: str) -> tuple[AppResults, str]:
    """Train, and return what the job reported, and the id of this run."""
    return app_task(COMPONENT, name="digits", scheduler=engine)(**ARGUMENTS), str(flow_run.id)


def lines_of(run: str) -> str:
    """Return the log of a flow run once the server has the app's last line; Prefect sends lines some time later."""
    end, found = time.monotonic() + 30, ""
    while "held-out" not in found and time.monotonic() < end:
        time.sleep(0.2)
        found = _read(run)
    return found


def _read(run: str) -> str:
    with get_client(sync_client=True) as client:
        return "\n".join(
            each.message for each in client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])))
        )


with prefect_test_harness(server_startup_timeout=180):
    for engine in ENGINES:
        cell = Cell("Prefect", engine)
        state = everywhere(engine, return_state=True)
        results, run = state.result()
        accuracy = results.value("accuracy", "final")
        cell.emit(results.handle, results.state.name, state.name, accuracy, lines_of(run))
