"""Time limits, and schedulers that cannot be reached from everywhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow_server import AirflowServer
from orm_airflow import OrmAirflow
from scripts import Stage, held

from transload_testing import ScriptedControl

MODES = ("sync", "deferrable")


def test_execution_timeout_cancels(stage: Stage) -> None:
    """execution_timeout ends the app, also while the task is deferred."""
    runs = [stage.run(f"{mode}_timeout", held()) for mode in MODES]
    runs[1].wait("deferred")  # else it is Airflow's own alarm that ends it
    for run in runs:
        run.wait("failed")
        assert stage.cancelled(stage.app_id(run))
        assert "AirflowTaskTimeout" in run.log()


HOUR = 3600.0


def test_clock_that_is_fast(
    host: OrmAirflow, control: ScriptedControl, eventually: Callable[..., Any]
) -> None:
    """A triggerer whose clock is fast ends no job before its time."""
    host.define(held(), deferrable=True, execution_timeout=timedelta(minutes=30))
    host.trigger()
    host.begin().wait()
    host.clock = HOUR
    trigger = host.watch()
    eventually(lambda: control.calls("describe"), 100, "a look at the job")
    control.open("go", control.started()[0])
    trigger.wait()
    host.resume().wait()
    assert host.state() == "success"
    assert not control.calls("cancel")


def test_clock_that_is_slow(host: OrmAirflow, control: ScriptedControl) -> None:
    """A triggerer whose clock is slow ends a job in time, and its worker as well."""
    host.define(held(), deferrable=True, execution_timeout=timedelta(seconds=20))
    host.trigger()
    host.begin().wait()
    host.clock = -HOUR
    host.fire()
    host.resume().wait()
    assert host.state() == "failed"
    assert control.calls("cancel", control.started()[0])


def test_triggerer_that_is_silent(host: OrmAirflow, control: ScriptedControl) -> None:
    """If Airflow itself finds that the time has passed, the worker's clock does not matter."""
    host.define(held(), deferrable=True, execution_timeout=timedelta(minutes=30))
    host.trigger()
    host.begin().wait()
    host.time_out()
    host.clock = -HOUR
    host.resume().wait()
    assert host.state() == "failed"
    assert control.calls("cancel", control.started()[0])


@pytest.mark.slow  # the core's own limits
def test_startup_and_schedule_timeout_cancel(stage: Stage) -> None:
    """A job that stays SUBMITTED or PENDING too long is cancelled. One that ran once is not."""
    cases = {
        "schedule_timeout": {"steps": ["SUBMITTED"]},
        "startup_timeout": {"steps": ["PENDING"]},
    }
    runs = [
        (words, stage.run(f"{mode}_startup", script))
        for mode in MODES
        for words, script in cases.items()
    ]
    restarted = [
        {"state": "RUNNING", "until": "seen"},
        {"state": "PENDING", "seconds": 2},
        "SUCCEEDED",
    ]
    fine = stage.run("deferrable_startup", {"steps": restarted})
    fine.wait("deferred")
    stage.go(fine, gate="seen")
    for words, run in runs:
        run.wait("failed")
        assert stage.cancelled(stage.app_id(run))
        assert words in run.log()
    fine.wait("success")


def test_reachable_from_the_worker_only(airflow: AirflowServer, stage: Stage) -> None:
    """A task whose scheduler only the submitter can reach waits in place, with one warning."""
    run = stage.run("handover", held(results={"0": {"x": 1}}))
    stage.handle(run)
    airflow.until(lambda: "waits in place" in run.log(), "the warning")
    assert run.state() == "running"
    stage.go(run)
    run.wait("success")
    assert run.log().count("waits in place") == 1
    assert run.xcom()["results"] == {"0": {"x": 1}}


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_triggerer_that_cannot_see_the_app(airflow: AirflowServer, stage: Stage) -> None:
    """A trigger elsewhere that cannot see the job hands back at once. The task waits in place."""
    airflow.end_part("triggerer")
    airflow.environment["TRANSLOAD_SCRIPTED_REACH"] = "process"
    try:
        airflow.start_part("triggerer")
        run = stage.run("deferrable_plain", held(results={"0": {"x": 1}}))
        airflow.until(lambda: "cannot wait for" in run.log(), "the warning", 150)
        stage.go(run)
        run.wait("success")
        assert run.log().count("cannot wait for") == 1
        assert run.xcom()["results"] == {"0": {"x": 1}}
    finally:
        del airflow.environment["TRANSLOAD_SCRIPTED_REACH"]
        airflow.end_part("triggerer")
        airflow.start_part("triggerer")


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_cost_of_fifty_deferred_apps(airflow: AirflowServer, stage: Stage) -> None:
    """Fifty deferred apps cost the triggerer less than a tenth of a core over what it costs
    idle.
    """
    import time

    def spent() -> float:
        return sum(_cpu_seconds(pid) for pid in _tree(airflow.pid_of("triggerer")))

    def share(seconds: float) -> float:
        before, began = spent(), time.monotonic()
        time.sleep(seconds)  # the length of the measurement
        return (spent() - before) / (time.monotonic() - began)

    idle = share(10)
    run = airflow.trigger("many")
    airflow.until(
        lambda: all(run.state(index=k) == "deferred" for k in (0, 25, 49)),
        "the apps are deferred",
        200,
    )
    airflow.until(
        lambda: [run.state(index=k) for k in range(50)] == ["deferred"] * 50,
        "all are deferred",
        200,
    )
    busy = share(20)
    stage.control.open("go")
    try:
        for k in range(50):
            run.wait("success", index=k, timeout=200)
    finally:
        stage.control.folder.unmark("go")
    assert busy - idle < 0.10, f"{busy:.3f} of a core, idle {idle:.3f}"


def _tree(pid: int) -> list[int]:
    found, level = [pid], [pid]
    while level:
        level = [child for each in level for child in _children(each)]
        found += level
    return found


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(each) for each in file.read().split()]
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    import os

    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
