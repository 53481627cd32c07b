"""What a task shows of a job that runs, and what a second try finds of the first one."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred
from contexts import execute, make_context

from transload.specs import AppDef, Role
from transload_airflow import AppStateTrigger, TransloadOperator
from transload_airflow.runner import runner_for_tasks
from transload_testing import ScriptedControl, scripted_app

LATE = {"fraction": 0.5, "step": 5, "total": 10, "eta_seconds": 7255.0}


def reporting(last: str, **options: Any) -> TransloadOperator:
    """Return a task whose job says how far it is, and has an end."""
    steps = [
        {"state": "RUNNING", "seconds": 0.3, "progress": LATE},
        {"state": last, "progress": {"fraction": 0.75, "step": 7}},
    ]
    app = scripted_app("a", {"steps": steps})
    return TransloadOperator(task_id="job", app=app, scheduler="scripted", defer_after=0, **options)


def wait_in_trigger(operator: TransloadOperator, context: dict[str, Any]) -> Any:
    """Run a task that defers, with its trigger, to the end."""
    with pytest.raises(TaskDeferred) as deferral:
        execute(operator, context)
    _, values = deferral.value.trigger.serialize()
    values["left"] = {}  # this process stays
    trigger = AppStateTrigger(**values)

    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        raise AssertionError("no event")

    return operator.resume(context, asyncio.run(first()))


RUNS = {"in place": execute, "deferred": wait_in_trigger}


def test_the_way_back(control: ScriptedControl) -> None:
    """A job has the address of the page on which Airflow shows the try that asked for it."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    assert hasattr(RuntimeTaskInstance, "log_url")
    operator = reporting("SUCCEEDED")
    context = make_context(operator)
    context["ti"].log_url = "https://airflow.example/dags/dag/runs/run/tasks/job?try_number=1"
    execute(operator, context)
    asked = runner_for_tasks().job(operator.handle).description().asked
    assert asked["airflow"]["url"] == context["ti"].log_url


@pytest.mark.parametrize("way", RUNS)
@pytest.mark.parametrize("last", ["SUCCEEDED", "FAILED"])
def test_last_progress_is_an_xcom(control: ScriptedControl, way: str, last: str) -> None:
    """How far the job was at its end can be had by other tasks, whichever way it was waited for
    and however it ended.
    """
    operator = reporting(last, deferrable=way == "deferred")
    context = make_context(operator)
    try:
        RUNS[way](operator, context)
    except AirflowException:
        assert last == "FAILED"
    found = context["ti"].xcoms["progress"]
    assert (found["fraction"], found["step"]) == (0.75, 7)
    assert "total" not in found


@pytest.mark.parametrize("way", RUNS)
def test_one_warning_that_it_will_be_late(
    control: ScriptedControl, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A job that will not end within the task's ``execution_timeout`` is warned of once."""
    limit = dt.timedelta(minutes=10)
    operator = reporting("SUCCEEDED", deferrable=way == "deferred", execution_timeout=limit)
    RUNS[way](operator, make_context(operator))
    lines = capfd.readouterr().out.splitlines()
    late = [line for line in lines if "it will not end within" in line]
    assert len(late) == 1
    assert "[warning" in late[0]
    assert len([line for line in lines if "50 %, step 5/10" in line]) == 1


@pytest.mark.parametrize(("checkpoints", "found"), [("keep", "kept by try 1"), ("new", "nothing")])
def test_second_try_and_checkpoints(
    transload_home: Path, checkpoints: Any, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The second try of a task finds the checkpoints of the first one, unless it is to begin
    without any.
    """
    program = """
import os, pathlib, sys
kept = pathlib.Path(os.environ["TRANSLOAD_CHECKPOINT_DIR"], "kept")
if kept.exists():
    sys.exit(print("found:", kept.read_text()))
kept.write_text("kept by try 1")
sys.exit(print("found: nothing") or 3)
"""
    role = Role("main", "", entrypoint=sys.executable, args=["-c", program], checkpoints=True)
    operator = TransloadOperator(
        task_id="job", app=AppDef("a", [role]), scheduler="local", checkpoints=checkpoints
    )
    context = make_context(operator, max_tries=1)
    caplog.set_level(logging.INFO)
    with pytest.raises(AirflowException, match="exit code 3"):
        execute(operator, context)
    later = make_context(operator, try_number=2, max_tries=1)
    later["task_state_store"] = context["task_state_store"]
    caplog.clear()
    try:
        execute(operator, later)
    except AirflowException:
        assert checkpoints == "new"
    assert f"found: {found}" in caplog.text


@pytest.mark.parametrize(
    ("in_a_pod", "said", "defers"),
    [(False, "auto", True), (True, "auto", False), (True, "true", True)],
)
def test_a_worker_in_a_pod_is_no_machine_of_the_triggerer(
    control: ScriptedControl,
    monkeypatch: pytest.MonkeyPatch,
    in_a_pod: bool,
    said: str,
    defers: bool,
) -> None:
    """A job on a worker's own machine is waited for in place where that is a pod, which ends when
    its task is deferred. There the configuration may say LocalExecutor.
    """
    monkeypatch.setenv("TRANSLOAD_SCRIPTED_REACH", "host")
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
    monkeypatch.setenv("AIRFLOW__TRANSLOAD__TRIGGERER_ON_SAME_MACHINE", said)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if in_a_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    operator = reporting("SUCCEEDED", deferrable=True)
    if defers:
        with pytest.raises(TaskDeferred):
            execute(operator, make_context(operator))
    else:
        assert execute(operator, make_context(operator))["state"] == "SUCCEEDED"
