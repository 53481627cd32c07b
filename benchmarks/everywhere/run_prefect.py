"""Tasks of flows on a real Prefect server."""

from __future__ import annotations

import os
import threading
import time

os.environ |= {
    "PREFECT_HOME": os.environ["TRANSLOAD_HOME"] + "/prefect",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}

from prefect import flow, get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.runtime import flow_run
from prefect.states import Cancelling
from prefect.testing.utilities import prefect_test_harness
from row import (
    ARGUMENTS,
    COMPONENT,
    ENDLESS,
    ENGINES,
    FAILING,
    Cell,
    cancelled,
    jobs,
    tried_again,
    until,
)

from transload.runner import AppResults
from transload_prefect import app_task


@flow(name="everywhere")
def everywhere(engine: str) -> tuple[AppResults, str]:
    """Train, and return what the job reported, and the id of this run."""
    return app_task(COMPONENT, name="digits", scheduler=engine)(**ARGUMENTS), str(flow_run.id)


@flow(name="failing")
def failing(engine: str) -> None:
    """Fail twice."""
    app_task(FAILING, name="failing", scheduler=engine, retries=1)()


@flow(name="endless")
def endless(engine: str) -> None:
    """Run until somebody cancels it."""
    threading.Thread(target=cancel, args=(engine, flow_run.id)).start()
    app_task(ENDLESS, name="endless", scheduler=engine)()


def cancel(engine: str, run: str) -> None:
    """Cancel a flow run whose app runs, as the interface does."""
    until(lambda: "RUNNING" in jobs("prefect", engine, "endless"), "the app runs")
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Cancelling(), force=True)


def lines_of(run: str) -> str:
    """Return the log of a flow run once the server has the app's last line; Prefect sends lines
    some time later.
    """
    end, found = time.monotonic() + 30, ""
    while "held-out" not in found and time.monotonic() < end:
        time.sleep(0.2)
        found = _read(run)
    return found


def _read(run: str) -> str:
    with get_client(sync_client=True) as client:
        return "\n".join(
            each.message
            for each in client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])))
        )


with prefect_test_harness(server_startup_timeout=180):
    for engine in ENGINES:
        cell = Cell("Prefect", engine)
        state = everywhere(engine, return_state=True)
        results, run = state.result()
        accuracy = results.value("accuracy", "final")
        endless(engine, return_state=True)
        failing(engine, return_state=True)
        cell.also(
            cancel=cancelled("prefect", engine),
            retry=tried_again("prefect", engine),
            waiter="– (a task run waits in its own process)",
        )
        cell.emit(results.handle, results.state.name, state.name, accuracy, lines_of(run))
