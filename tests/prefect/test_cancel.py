"""An end that a person asked for ends a flow's jobs as well. Any other end leaves them."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from transload.pipelines import host_runner

FLOW = """
import asyncio, sys
from jobs import job
from prefect import flow, task as ordinary
from transload_prefect import app_task, run_app, run_app_async

gate, how, on_kill = sys.argv[1:4]
given = {"component_args": {"gate": gate, "lines": 1}, "on_kill": on_kill}
task = app_task(job, **given)

@flow(name="plain", log_prints=True)
def work():
    if how == "call":
        task()
    elif how == "nested":
        inner()
    elif how in INSIDE:
        for future in ordinary(INSIDE[how]).map([1, 2]):
            future.result()
    else:
        for future in task.map(value=[1.0, 2.0]):
            future.result()

@flow
def inner():
    task()

INSIDE = {
    "inside": lambda n: run_app(job, component_args={"gate": gate}),
    "flow inside": lambda n: inner(),
}

@flow(name="plain")
async def work_in_a_loop():
    if how == "coroutine":
        await run_app_async(job, **given)
    else:
        for future in task.map(value=[1.0, 2.0]):
            await asyncio.to_thread(future.result)

if __name__ == "__main__":
    if how.startswith("coroutine"):
        asyncio.run(work_in_a_loop())
    else:
        work.with_options(timeout_seconds=float(sys.argv[4]) if len(sys.argv) > 4 else None)()
"""


def _states() -> list[str]:
    return [each.state.name for each in host_runner("prefect").list("local")]


def _send(process: Any, number: int) -> None:
    """Send a signal to a flow whose apps run, once its main thread waits for them.

    Python 3.11 misses a signal that arrives just when its main thread begins to wait for a lock and
    other threads compute, until that wait ends (or another signal comes): about one in seventy
    within 20 ms, without any library.
    """
    time.sleep(0.5)
    process.send_signal(number)


def _flow_run(host: Any, name: str = "plain") -> dict[str, Any] | None:
    runs = host.post(
        "/flow_runs/filter", flows={"name": {"any_": [name]}}, sort="START_TIME_DESC", limit=1
    )
    return runs[0] if runs else None


@pytest.mark.leaves_processes
@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("call", signal.SIGTERM),
        ("inside", signal.SIGTERM),
        ("map", signal.SIGINT),
        *(
            pytest.param(how, signal.SIGINT, marks=pytest.mark.slow)
            for how in ("inside", "coroutine", "coroutines")
        ),
        *(
            pytest.param(how, signal.SIGTERM, marks=pytest.mark.slow)
            for how in ("coroutine", "map", "flow inside")
        ),
    ],
)
def test_signals(
    number: int, how: str, host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """Ctrl-C in a flow's process cancels its jobs, also in threads. After SIGTERM they go on."""
    process = script(FLOW).start(str(gate), how, "cancel")
    count = 1 if how in ("call", "coroutine") else 2
    eventually(lambda: _states() == ["RUNNING"] * count, 60)
    _send(process, number)
    if number == signal.SIGINT:
        eventually(lambda: _states() == ["CANCELLED"] * count, 60)
    eventually(lambda: process.poll() is not None, 60)
    if number == signal.SIGTERM:
        assert _states() == ["RUNNING"] * count
        gate.touch()
        eventually(lambda: _states() == ["SUCCEEDED"] * count, 30)
    # before 3.8.4 Prefect leaves any flow run that SIGTERM ended as Running
    if number != signal.SIGTERM or Version(version("prefect")) >= Version("3.8.4"):
        eventually(
            lambda: (_flow_run(host) or {}).get("state_type") in ("CRASHED", "CANCELLED"), 30
        )


@pytest.mark.leaves_processes
@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("call", signal.SIGINT),
        ("map", "interface"),
        pytest.param("map", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_detach(
    how: str,
    end: signal.Signals | str,
    host: Any,
    gate: Path,
    script: Callable[[str], Any],
    eventually: Any,
) -> None:
    """With ``on_kill="detach"`` the jobs go on, whoever ends the flow, and their tasks say so."""
    process = script(FLOW).start(str(gate), how, "detach")
    count = 1 if how == "call" else 2
    eventually(lambda: _states() == ["RUNNING"] * count, 60)
    if isinstance(end, signal.Signals):
        _send(process, end)
    else:
        run = eventually(lambda: _flow_run(host), 60)
        host.cancel(run["id"])
        states = {"CANCELLED/AppDetached": count}
        eventually(lambda: Counter(_task_states(host, run["id"])) == states, 60)
    eventually(lambda: process.poll() is not None, 60)
    assert _states() == ["RUNNING"] * count
    gate.touch()
    eventually(lambda: _states() == ["SUCCEEDED"] * count, 30)


def _task_states(host: Any, flow_run_id: str) -> list[str]:
    return [f"{each['state_type']}/{each['state_name']}" for each in host.task_runs(flow_run_id)]


@pytest.mark.parametrize(
    "how",
    ["nested", *(pytest.param(how, marks=pytest.mark.slow) for how in ("call", "map"))],
)
def test_cancelled_through_the_api(
    how: str, host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """A plain flow run cancelled in the interface ends its jobs, and ends as cancelled."""
    process = script(FLOW).start(str(gate), how, "cancel")
    count = 2 if how == "map" else 1
    eventually(lambda: _states() == ["RUNNING"] * count, 60)
    run = eventually(lambda: _flow_run(host), 60)
    host.cancel(run["id"])
    eventually(lambda: _states() == ["CANCELLED"] * count, 60)
    eventually(lambda: process.poll() is not None, 60)
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "CANCELLED", 30)
    if how in ("call", "map"):
        # one of several is told when its sibling's end has ended the flow: Prefect may not hear of
        # it any more
        eventually(lambda: "CANCELLED/AppCancelled" in _task_states(host, run["id"]), 30)


@pytest.mark.parametrize("how", [pytest.param("call", marks=pytest.mark.slow), "map"])
def test_a_time_limit_of_the_flow(
    how: str, host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """The time limit of a flow ends its apps, as a kill does.

    In a process of its own: the limit is an alarm, which Prefect leaves to the test runner where
    that has one.
    """
    process = script(FLOW).start(str(gate), how, "cancel", "6")
    eventually(lambda: process.poll() is not None, 90)
    eventually(lambda: (_flow_run(host) or {}).get("state_name") == "TimedOut", 30)
    # on a very busy machine, the apps had no time to start
    eventually(lambda: set(_states()) <= {"CANCELLED"}, 30)


def test_nobody_waits_for_what_was_submitted(host: Any, gate: Path, eventually: Any) -> None:
    """A flow that returns leaves the job that it submitted running."""
    from jobs import job
    from prefect import flow

    from transload_prefect import app_task

    task = app_task(job, component_args={"gate": str(gate)})
    runner = host_runner("prefect")

    @flow
    def work() -> None:
        task.submit()
        eventually(lambda: [each.state.name for each in runner.list("local")] == ["RUNNING"], 30)

    work(return_state=True)
    assert [each.state.name for each in runner.list("local")] == ["RUNNING"]
    gate.touch()
    eventually(lambda: [each.state.name for each in runner.list("local")] == ["SUCCEEDED"], 30)


SERVE = """
import sys
from jobs import job
from prefect import flow
from transload_prefect import app_task

task = app_task(job, component_args={"gate": sys.argv[1]})

@flow(name="served")
def work():
    task()

if __name__ == "__main__":
    work.serve(name="served")
"""


@pytest.mark.slow
def test_served_deployment(
    host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """A served deployment's run cancelled in the interface ends its job, and ends as cancelled."""
    script(SERVE.replace("sys.argv[1]", repr(str(gate)))).start(PREFECT_RUNNER_POLL_FREQUENCY="1")
    deployment = eventually(
        lambda: host.post("/deployments/filter", deployments={"name": {"any_": ["served"]}}), 60
    )[0]
    eventually(lambda: host.get(f"/deployments/{deployment['id']}")["status"] == "READY", 30)
    run = host.post(f"/deployments/{deployment['id']}/create_flow_run")
    eventually(lambda: _states() == ["RUNNING"], 60)
    host.cancel(run["id"])
    eventually(lambda: _states() == ["CANCELLED"], 30)
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "CANCELLED", 30)
