"""Every way in which Prefect's users end a flow ends its apps as well; or lets them go, when told to."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.pipelines import host_runner

FLOW = """
import sys
from jobs import job
from prefect import flow
from transload_prefect import AppTaskRunner, app_task

gate, how, on_kill = sys.argv[1:4]
task = app_task(job, args={"gate": gate, "lines": 1}, on_kill=on_kill)

@flow(name="plain", log_prints=True, task_runner=AppTaskRunner() if how == "loop" else None)
def work():
    if how == "call":
        task()
    elif how == "nested":
        inner()
    else:
        for future in task.map(value=[1.0, 2.0]):
            future.result()

@flow
def inner():
    task()

if __name__ == "__main__":
    work()
"""


def _states() -> list[str]:
    return [each.state.name for each in host_runner("prefect").list("local")]


def _flow_run(host: Any, name: str = "plain") -> dict[str, Any] | None:
    runs = host.post("/flow_runs/filter", flows={"name": {"any_": [name]}}, sort="START_TIME_DESC", limit=1)
    return runs[0] if runs else None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", ["call", "map", "loop"])
def test_signals(
    number: signal.Signals, how: str, host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """SIGTERM and SIGINT to the flow's process cancel its apps, also those that threads wait for."""
    process = script(FLOW).start(str(gate), how, "cancel")
    count = 1 if how == "call" else 2
    eventually(lambda: _states() == ["RUNNING"] * count, 40)
    process.send_signal(number)
    eventually(lambda: _states() == ["CANCELLED"] * count, 20)
    eventually(lambda: process.poll() is not None, 20)
    eventually(lambda: (_flow_run(host) or {}).get("state_type") in ("CRASHED", "CANCELLED"), 10)


@pytest.mark.leaves_processes
def test_detach(host: Any, gate: Path, script: Callable[[str], Any], eventually: Any) -> None:
    """With ``on_kill="detach"`` the apps go on."""
    process = script(FLOW).start(str(gate), "map", "detach")
    eventually(lambda: _states() == ["RUNNING"] * 2, 40)
    process.send_signal(signal.SIGTERM)
    eventually(lambda: process.poll() is not None, 20)
    assert _states() == ["RUNNING"] * 2
    gate.touch()
    eventually(lambda: _states() == ["SUCCEEDED"] * 2, 20)


@pytest.mark.parametrize("how", ["call", "map", "nested"])
def test_cancelled_through_the_api(
    how: str, host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """A flow run that is a plain process, cancelled in the interface: its apps end, and it ends as cancelled."""
    process = script(FLOW).start(str(gate), how, "cancel")
    count = 2 if how == "map" else 1
    eventually(lambda: _states() == ["RUNNING"] * count, 40)
    run = eventually(lambda: _flow_run(host), 10)
    host.cancel(run["id"])
    eventually(lambda: _states() == ["CANCELLED"] * count, 20)
    eventually(lambda: process.poll() is not None, 30)
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "CANCELLED", 10)


SERVE = """
import sys
from jobs import job
from prefect import flow
from transload_prefect import app_task

task = app_task(job, args={"gate": sys.argv[1]})

@flow(name="served")
def work():
    task()

if __name__ == "__main__":
    work.serve(name="served", query_seconds=1) if hasattr(work, "serve") else None
"""


@pytest.mark.slow
def test_served_deployment(host: Any, gate: Path, script: Callable[[str], Any], eventually: Any) -> None:
    """A run of a served deployment, cancelled in the interface: its app ends, and it ends as cancelled."""
    body = SERVE.replace(', query_seconds=1) if hasattr(work, "serve") else None', ")").replace(
        "sys.argv[1]", repr(str(gate))
    )
    script(body).start(PREFECT_RUNNER_POLL_FREQUENCY="1")
    deployment = eventually(lambda: host.post("/deployments/filter", deployments={"name": {"any_": ["served"]}}), 60)[0]
    eventually(lambda: host.get(f"/deployments/{deployment['id']}")["status"] == "READY", 30)
    run = host.post(f"/deployments/{deployment['id']}/create_flow_run")
    eventually(lambda: _states() == ["RUNNING"], 60)
    host.cancel(run["id"])
    eventually(lambda: _states() == ["CANCELLED"], 30)
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "CANCELLED", 30)
