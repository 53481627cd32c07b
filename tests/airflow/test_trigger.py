"""The trigger alone is stopped, ended by a person, or in the wrong place."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from contexts import execute, make_context, refuse_cancels

from transload.errors import ConfigError
from transload_airflow import (
    AppSensor,
    AppStateTrigger,
    TransloadOperator,
    deferral,
    log_lines,
    step,
    triggers,
)
from transload_testing import ScriptedControl, scripted_app


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedControl:
    """Scripted apps of a test's own."""
    control = ScriptedControl(tmp_path / "scripted")
    monkeypatch.setenv("TRANSLOAD_HOME", str(tmp_path / "home"))
    for name, value in control.environment().items():
        monkeypatch.setenv(name, value)
    return control


def deferred(operator: TransloadOperator | AppSensor, context: dict[str, Any]) -> AppStateTrigger:
    """Run a task until it defers, and return its trigger, as the triggerer makes it."""
    with pytest.raises(TaskDeferred) as deferral:
        execute(operator, context)
    path, values = deferral.value.trigger.serialize()
    assert path == "transload_airflow.triggers.AppStateTrigger"
    values["left"] = {}  # this process stays
    return AppStateTrigger(**values)


def held(*, lines: int = 3, **options: Any) -> tuple[TransloadOperator, dict[str, Any]]:
    """Return a task whose app writes lines, and runs until its gate is opened."""
    written = [{"text": f"line {number}"} for number in range(lines)]
    app = scripted_app(
        "a", {"steps": [{"state": "RUNNING", "until": "go", "lines": written}, "SUCCEEDED"]}
    )
    operator = TransloadOperator(
        task_id="job",
        app=app,
        scheduler="scripted",
        deferrable=True,
        defer_after=0,
        logging_interval=0.05,
        **options,
    )
    return operator, make_context(operator)


async def first(trigger: AppStateTrigger) -> Any:
    """Return the payload of the trigger's event."""
    async for event in trigger.run():
        return event.payload
    raise AssertionError("no event")


async def stopped_after(trigger: AppStateTrigger, caplog: pytest.LogCaptureFixture) -> None:
    """Run a trigger until it has handed on a last line, then stop it as a triggerer's end does."""
    task = asyncio.create_task(first(trigger))
    end = time.monotonic() + 20
    while "main/0 line 59" not in lines_of(caplog):
        assert time.monotonic() < end, caplog.text
        await asyncio.sleep(0.05)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)
    assert done, "the triggerer's stop was swallowed"
    assert task.cancelled()


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of jobs in the log of the task."""
    return [each.getMessage() for each in caplog.records if each.name == "transload.app"]


@pytest.mark.parametrize("late", [False, True])
async def test_another_triggerer_takes_over(
    control: ScriptedControl,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    late: bool,
) -> None:
    """A triggerer that ends leaves the job alone.

    The next one goes on with the logs where the task was, and after a while with the last lines.
    """
    caplog.set_level(logging.INFO)
    operator, context = held(lines=60)
    trigger = deferred(operator, context)
    # what the task itself has logged before it deferred does not count
    trigger.state["cursor"] = None
    caplog.clear()
    await stopped_after(trigger, caplog)
    caplog.clear()
    again = AppStateTrigger(**trigger.serialize()[1])
    if late:
        again.state["at"] -= 3600
    control.open("go")
    outcome = await asyncio.wait_for(first(again), 20)
    assert outcome["kind"] == "ended"
    assert len(lines_of(caplog)) == (50 if late else 60)
    assert ("to see all of them: transload log" in capfd.readouterr().out) is late
    assert control.calls("cancel") == []
    caplog.clear()
    assert operator.resume(context, outcome)["state"] == "SUCCEEDED"
    assert lines_of(caplog) == []


async def test_second_try_begins_with_the_last_lines(
    control: ScriptedControl, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of a try that reattaches has the last lines, and the command that shows the rest."""
    caplog.set_level(logging.INFO)
    operator, context = held(lines=60)
    deferred(operator, context)
    caplog.clear()
    control.open("go")
    again, _ = held(lines=60)
    later = {
        **make_context(again, try_number=2, max_tries=0),
        "task_state_store": context["task_state_store"],
    }
    assert execute(again, later)["state"] == "SUCCEEDED"
    assert lines_of(caplog) == [f"main/0 line {number}" for number in range(10, 60)]
    assert len(control.started()) == 1


async def test_lines_are_read_before_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger fires once the lines in its log's socket were read, but waits a limited time."""
    ours, theirs = socket.socketpair()
    handler = logging.StreamHandler(ours.makefile("w"))
    logging.getLogger().addHandler(handler)
    try:
        await deferral.lines_are_read()
        logging.getLogger().warning("a line")
        waiting = asyncio.create_task(deferral.lines_are_read())
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        assert b"a line" in theirs.recv(4096)
        await asyncio.wait_for(waiting, 10)
        monkeypatch.setattr(deferral, "LONGEST_DRAIN_S", 0.05)
        logging.getLogger().warning("another line")
        await asyncio.wait_for(deferral.lines_are_read(), 10)
    finally:
        logging.getLogger().removeHandler(handler)
        handler.stream.close()
        ours.close()
        theirs.close()


@pytest.mark.parametrize(
    "text", ["x" * 29_000, "x" * 1_300_000, "é" * 20_000, "\x00" * 20_000, "short"]
)
def test_a_very_long_line_comes_in_pieces(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A very long line comes in pieces that a thread writes at once, with nothing missing."""
    pieces: list[str] = []
    monkeypatch.setattr(
        "transload_airflow.log_lines.log_line",
        lambda role, replica, line: pieces.append(line),
    )
    log_lines.log_line_in_pieces("main", 0, f"{text}\n")
    assert "".join(pieces) == text
    assert max(len(json.dumps(piece)) for piece in pieces) <= 31_000


@pytest.mark.parametrize(("on_kill", "cancels"), [("cancel", 1), ("detach", 0)])
async def test_person_ends_a_deferred_task(
    control: ScriptedControl, on_kill: str, cancels: int
) -> None:
    """Airflow calls on_kill for a marked or cleared task, which cancels or leaves the job."""
    trigger = deferred(*held(on_kill=on_kill))
    await trigger.on_kill()
    assert len(control.calls("cancel")) == cancels
    control.open("go")


async def test_person_ends_a_deferred_task_of_a_silent_scheduler(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler out of reach is asked again.

    One that stays so is given up, and the log says so.
    """
    trigger = deferred(*held())
    refuse_cancels(monkeypatch, 2)
    await trigger.on_kill()
    assert len(control.calls("cancel")) == 1
    refuse_cancels(monkeypatch, 10**6)
    monkeypatch.setattr(step, "CANCEL_S", 0.05)
    await asyncio.wait_for(trigger.on_kill(), 20)
    assert len(control.calls("cancel")) == 1


async def test_lines_in_the_log_of_a_sensor(
    control: ScriptedControl, caplog: pytest.LogCaptureFixture
) -> None:
    """A deferred sensor hands on the lines of its job if it is to, and else none."""
    caplog.set_level(logging.INFO)
    operator, context = held()
    handle = deferred(operator, context).state["handle"]
    waiting = {}
    for forward_logs in (False, True):
        sensor = AppSensor(task_id="job", handle=handle, deferrable=True, forward_logs=forward_logs)
        waiting[forward_logs] = sensor, deferred(sensor, make_context(sensor))
    control.open("go")
    for forward_logs, (sensor, trigger) in waiting.items():
        caplog.clear()
        outcome = await asyncio.wait_for(first(trigger), 20)
        assert len(lines_of(caplog)) == (3 if forward_logs else 0)
        assert sensor.resume(make_context(sensor), outcome)["state"] == "SUCCEEDED"


async def test_event_waits_for_the_process_that_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is held back until the supervisor must have noticed, but not in `dag.test()`.

    On a busy machine that takes longer.
    """
    monkeypatch.setattr(deferral, "ACCOUNTING_S", 0.5)
    monkeypatch.setattr(deferral.conf, "getint", lambda *args, **more: 0)
    elsewhere = {"name": "of another process"}

    async def seconds() -> float:
        begin = time.monotonic()
        await asyncio.wait_for(deferral.wait_until_released(elsewhere), 20)
        return time.monotonic() - begin

    monkeypatch.setattr(deferral.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert await seconds() >= 0.5
    busy = 8.0 * (deferral.os.cpu_count() or 1)
    monkeypatch.setattr(deferral.os, "getloadavg", lambda: (busy, 0.0, 0.0))
    assert await seconds() >= 2.0
    await asyncio.wait_for(deferral.wait_until_released(deferral.mark_deferred()), 5)
    await asyncio.wait_for(deferral.wait_until_released({}), 5)


async def test_broken_trigger_waits_too(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger that cannot even begin breaks only once Airflow has accounted for the process that
    deferred.
    """
    waited = []

    async def wait_until_released(left: object) -> None:
        await asyncio.sleep(0.2)
        waited.append(left)

    monkeypatch.setattr(triggers, "wait_until_released", wait_until_released)
    trigger = deferred(*held())
    trigger.state["options"] = {"patience": "broken"}
    with pytest.raises(ConfigError, match="patience"):
        await asyncio.wait_for(first(trigger), 20)
    assert waited == [{}]
    control.open("go")


async def test_elsewhere(control: ScriptedControl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger that is on another machine than the app says so at once, and the task waits in
    place.
    """
    monkeypatch.setenv("TRANSLOAD_SCRIPTED_REACH", "host")
    import transload.runner.api as shared

    monkeypatch.setattr(shared, "_runners", {})
    monkeypatch.setenv("AIRFLOW__TRANSLOAD__TRIGGERER_ON_SAME_MACHINE", "true")
    operator, context = held()
    trigger = deferred(operator, context)
    trigger.state["place"] = "another-boot/pid:[1]"
    outcome = await asyncio.wait_for(first(trigger), 20)
    assert outcome["kind"] == "elsewhere"
    control.open("go")
    found = await asyncio.to_thread(operator.resume, context, outcome)
    assert found["state"] == "SUCCEEDED"


async def test_before_3_3_the_state_of_the_task_decides(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older Airflow only stops the trigger, and the job is cancelled unless still deferred."""
    from airflow.triggers.base import BaseTrigger

    monkeypatch.delattr(BaseTrigger, "on_kill")
    trigger = deferred(*held())
    for state, cancels in (("deferred", 0), (None, 0), ("failed", 1)):

        def state_of(ti: object, state: str | None = state) -> str | None:
            return state

        monkeypatch.setattr("transload_airflow.triggers.task_state", state_of)
        await trigger._left_alone()
        assert len(control.calls("cancel")) == cancels

    def refuse(ti: object) -> None:
        raise ConnectionError("no API server")

    monkeypatch.setattr("transload_airflow.triggers.task_state", refuse)
    await trigger._left_alone()  # a trigger that breaks as it is stopped would fail its task
    assert len(control.calls("cancel")) == 1
    control.open("go")
