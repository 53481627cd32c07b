"""The sensor by itself, poking."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)
from contexts import execute, make_context

from transload.errors import ConfigError
from transload.pipelines import host_runner
from transload_airflow import AppSensor, sensors
from transload_testing import ScriptedControl, scripted_app


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock for sensors that goes on by a minute with each poke."""
    clock = count(1_000_000, 60)
    monkeypatch.setattr(sensors, "time", SimpleNamespace(time=lambda: float(next(clock))))


def started(*steps: Any) -> str:
    """Start a scripted job, and return its handle."""
    return host_runner("airflow").run(scripted_app("a", {"steps": list(steps)}), "scripted")


SILENT = {"state": "UNAVAILABLE", "until": "back"}


@pytest.mark.parametrize(
    ("mode", "with_store"), [("poke", False), ("poke", True), ("reschedule", True)]
)
@pytest.mark.usefixtures("minutes")
def test_patience_is_counted_over_pokes(
    control: ScriptedControl, mode: str, with_store: bool
) -> None:
    """A scheduler silent for longer than ``patience`` fails the try, but not the next one."""
    handle = started(SILENT, {"state": "RUNNING", "until": "go"}, SILENT | {"until": "never"})

    def sensor() -> AppSensor:
        return AppSensor(task_id="wait", handle=handle, deferrable=False, patience=150, mode=mode)

    context = make_context(sensor(), with_store=with_store)
    one = sensor()

    def poke() -> Any:
        return (sensor() if mode == "reschedule" else one).poke(context)

    assert [poke(), poke(), poke()] == [False, False, False]
    control.open("back")
    assert poke() is False  # it runs: the count starts again
    control.open("go")
    assert [poke(), poke(), poke()] == [False, False, False]
    with pytest.raises(AirflowException, match="is unknown for 180") as failure:
        poke()
    assert not isinstance(failure.value, AirflowFailException)
    context["ti"].try_number = 2
    one = sensor()
    assert poke() is False
    assert control.calls("cancel") == []


def test_patience_goes_on_after_the_triggerer(control: ScriptedControl) -> None:
    """A sensor whose trigger has lost patience fails with its first poke."""
    handle = started({"state": "RUNNING", "until": "go"})
    sensor = AppSensor(task_id="wait", handle=handle, deferrable=True, patience=0.5)
    context = make_context(sensor)
    control.outage()
    with pytest.raises(TaskDeferred) as deferred:
        execute(sensor, context)

    async def event() -> Any:
        return await anext(deferred.value.trigger.run())

    told = asyncio.run(event()).payload
    assert told["unknown_for"] >= 0.5
    with pytest.raises(AirflowException, match="is unknown for"):
        sensor.resume(context, told)
    control.outage(False)
    control.open("go")


def test_poke_of_nothing(control: ScriptedControl) -> None:
    """An app that does not exist fails the sensor for good."""
    sensor = AppSensor(task_id="wait", handle="scripted://airflow/none", deferrable=False)
    with pytest.raises(AirflowFailException, match="does not exist"):
        sensor.poke(make_context(sensor))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"cancelled": "ignore"}, "cancelled='ignore'"), ({"patience": "much"}, "patience='much'")],
)
def test_wrong_arguments_fail_when_the_dag_is_read(arguments: dict[str, Any], words: str) -> None:
    """A setting that is not allowed is an import error of the DAG."""
    with pytest.raises(ConfigError, match=words):
        AppSensor(task_id="wait", handle="scripted://airflow/none", **arguments)


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize(
    "handle", ["scripted://airflow/none", "nonsense", "nosuch://airflow/none", ""]
)
@pytest.mark.parametrize(
    ("soft_fail", "kind"), [(False, AirflowFailException), (True, AirflowSkipException)]
)
def test_bad_handles(
    control: ScriptedControl, deferrable: bool, handle: str, soft_fail: bool, kind: type
) -> None:
    """A handle that leads nowhere fails the sensor for good, or with ``soft_fail`` skips it."""
    sensor = AppSensor(task_id="wait", handle=handle, deferrable=deferrable, soft_fail=soft_fail)
    with pytest.raises(kind):
        execute(sensor, make_context(sensor))


@pytest.mark.parametrize(
    ("soft_fail", "kind"), [(False, AirflowException), (True, AirflowSkipException)]
)
def test_app_that_has_failed_is_not_deferred(
    control: ScriptedControl, soft_fail: bool, kind: type
) -> None:
    """The look before a deferral treats a failed app as the one after it would."""
    sensor = AppSensor(
        task_id="wait", handle=started("FAILED"), deferrable=True, soft_fail=soft_fail
    )
    with pytest.raises(kind, match="FAILED") as failure:
        execute(sensor, make_context(sensor))
    assert type(failure.value) is kind
    assert soft_fail or failure.traceback[-1].name == "brief", (
        "Airflow logs the message, without a page of our frames"
    )


def test_poke_brings_the_results(control: ScriptedControl) -> None:
    """The poke that sees the end hands on the results."""
    app = scripted_app("a", {"results": {"0": {"x": 1}}})
    handle = host_runner("airflow").run(app, "scripted")
    sensor = AppSensor(task_id="wait", handle=handle, deferrable=False)
    found = sensor.poke(make_context(sensor))
    assert found.is_done
    assert found.xcom_value["results"] == {"0": {"x": 1}}
