"""A task that an earlier version deferred ends by the trigger that is installed now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from contexts import make_context

from transload.specs import AppDef, AppState, Role
from transload_airflow import AppStateTrigger, TransloadOperator
from transload_airflow.runner import runner_for_tasks

DEFER = """
import json, sys
from airflow.providers.common.compat.sdk import TaskDeferred
from contexts import execute, make_context
from transload.specs import AppDef, Role
from transload_airflow import TransloadOperator

gate, deferrals = sys.argv[1], {}
for name in ("waited", "killed", "again"):
    wait = f"echo begun; while [ ! -e {gate} ]; do sleep 0.05; done"
    app = AppDef(name, [Role("r", "", entrypoint="sh", args=["-c", wait])])
    operator = TransloadOperator(task_id=name, app=app, scheduler="local", deferrable=True, defer_after=0)
    context = make_context(operator)
    try:
        execute(operator, context)
    except TaskDeferred as deferral:
        made = [*deferral.trigger.serialize(), deferral.method_name, deferral.kwargs or {}]
        deferrals[name] = [*made, dict(context["task_state_store"])]
print(json.dumps(deferrals))
"""


@pytest.mark.slow
@pytest.mark.leaves_processes  # the earlier version's own helpers end when they have been idle
@pytest.mark.timeout(600)
async def test_a_task_deferred_by_an_earlier_version(
    tmp_path: Path,
    transload_home: Path,
    earlier: ModuleType,
    eventually: Callable[..., Any],
) -> None:
    """Deferred by an earlier version, a task is waited for and resumed, another one is cancelled,
    and a third one's next try attaches.
    """
    python, sources = earlier.install(tmp_path, "core", "plugins/testing", "plugins/airflow")
    gate = tmp_path / "gate"
    written = earlier.run(python, DEFER, str(gate), path=str(sources / "tests" / "airflow"))
    deferrals = json.loads(written.splitlines()[-1])
    assert sorted(deferrals) == ["again", "killed", "waited"]
    handles = {name: made[1]["state"]["handle"] for name, made in deferrals.items()}
    runner = runner_for_tasks()
    for handle in handles.values():
        assert runner.status(handle).state is AppState.RUNNING
    for path, *_ in deferrals.values():
        assert path == "transload_airflow.triggers.AppStateTrigger"

    await AppStateTrigger(**deferrals["killed"][1]).on_kill()
    eventually(lambda: runner.status(handles["killed"]).state is AppState.CANCELLED, 60)

    # the worker died, and with it the wait: the task is run again
    again = _operator("again")
    context = make_context(again)
    context["task_state_store"].update(deferrals["again"][4])
    again.deferrable = False
    trying = asyncio.create_task(asyncio.to_thread(type(again).execute.__wrapped__, again, context))

    waiting = asyncio.create_task(_payload(AppStateTrigger(**deferrals["waited"][1])))
    gate.touch()
    event = await asyncio.wait_for(waiting, 120)
    assert event["kind"] == "ended"
    operator = _operator("waited")
    _, _, method, more, store = deferrals["waited"]
    context = make_context(operator)
    context["task_state_store"].update(store)
    assert getattr(operator, method)(context, event, **more)["state"] == "SUCCEEDED"
    assert operator.handle == handles["waited"]
    assert (await asyncio.wait_for(trying, 120))["handle"] == handles["again"]


def _operator(name: str) -> TransloadOperator:
    """Return the task of the same DAG, as the version that is installed now reads it."""
    app = AppDef(name, [Role("r", "", entrypoint="true")])
    return TransloadOperator(
        task_id=name, app=app, scheduler="local", deferrable=True, defer_after=0
    )


async def _payload(trigger: AppStateTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("no event")
