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
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from contexts import execute, make_context, refuse_cancels

from transload_airflow import (
    AppCallbacks,
    AppSensor,
    AppStateTrigger,
    TransloadOperator,
    adapter,
    deferral,
    log_lines,
    triggers,
)
from transload_airflow.stores import CursorFile
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


def held(**options: Any) -> tuple[TransloadOperator, dict[str, Any]]:
    """Return a task whose app runs until its gate is opened."""
    lines = [{"text": f"line {number}"} for number in range(3)]
    app = scripted_app(
        "a", {"steps": [{"state": "RUNNING", "until": "go", "lines": lines}, "SUCCEEDED"]}
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


async def stopped(trigger: AppStateTrigger, seen: asyncio.Event) -> None:
    """Run a trigger until something was seen, then stop it as a triggerer that shuts down does."""
    task = asyncio.create_task(first(trigger))
    await asyncio.wait_for(seen.wait(), 20)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)
    assert done, "the triggerer's stop was swallowed"
    assert task.cancelled()


async def test_shutdown_leaves_the_app_and_repeats_no_line(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A triggerer that ends leaves the job alone.

    The next one goes on with the logs where it was.
    """
    operator, context = held()
    trigger = deferred(operator, context)
    lines: list[str] = []
    seen = asyncio.Event()
    loop = asyncio.get_running_loop()

    def note(role: str, replica: int, stream: object, line: str) -> None:
        lines.append(line)
        if line.startswith("line 2"):
            loop.call_soon_threadsafe(seen.set)

    monkeypatch.setattr("transload_airflow.triggers.log_line_in_pieces", note)
    # what the task itself has logged before it deferred does not count
    trigger.state["cursor"] = None
    await stopped(trigger, seen)
    for _ in range(200):
        if CursorFile(trigger.state["identity"]).get():
            break
        await asyncio.sleep(0.01)
    again = AppStateTrigger(**trigger.serialize()[1])
    control.open("go")
    outcome = await asyncio.wait_for(first(again), 20)
    assert outcome["kind"] == "ended"
    assert sorted(lines) == ["line 0\n", "line 1\n", "line 2\n"]
    assert control.calls("cancel") == []
    assert operator.resume(context, outcome)["state"] == "SUCCEEDED"


class Fails(AppCallbacks):
    """A DAG author's callback that breaks the first try."""

    def on_results(self, results: Any, context: Any) -> None:
        """Raise in the first try."""
        if context["ti"].try_number == 1:
            raise RuntimeError("the first try fails")


@pytest.mark.parametrize("dies", ["before it is back", "when it is back"])
async def test_second_try_repeats_no_line(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """A try that follows a deferral goes on after the lines that the trigger has handed on, though
    the first died.
    """
    lines: list[str] = []

    def note(role: str, replica: int, stream: object, line: str) -> None:
        lines.append(line)

    monkeypatch.setattr("transload_airflow.log_lines.log_line", note)
    monkeypatch.setattr("transload_airflow.operators.log_line", note)
    operator, context = held(callbacks=Fails())
    trigger = deferred(operator, context)
    control.open("go")
    outcome = await asyncio.wait_for(first(trigger), 20)
    if dies == "when it is back":
        with pytest.raises(RuntimeError, match="the first try fails"):
            held(callbacks=Fails())[0].resume(context, outcome)
    assert len(lines) == 3
    again, _ = held(callbacks=Fails())
    later = {
        **make_context(again, try_number=2, max_tries=0),
        "task_state_store": context["task_state_store"],
    }
    assert execute(again, later)["state"] == "SUCCEEDED"
    assert len(lines) == 3
    assert len(control.started()) == 1
    assert CursorFile(trigger.state["identity"]).get() is None, (
        "what the trigger kept is not left behind"
    )


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
        lambda role, replica, stream, line: pieces.append(line),
    )
    log_lines.log_line_in_pieces("main", 0, None, f"{text}\n")
    assert "".join(pieces) == text
    assert max(len(json.dumps(piece)) for piece in pieces) <= 31_000


async def test_positions_that_cannot_be_kept_cost_no_wait(
    control: ScriptedControl, tmp_path: Path
) -> None:
    """A triggerer whose disk takes no file hands on the lines and waits all the same."""
    trigger = deferred(*held())
    trigger.state["cursor"] = None
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "airflow").touch()  # stands for a full disk
    control.open("go")
    outcome = await asyncio.wait_for(first(trigger), 20)
    assert outcome["kind"] == "ended", outcome


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
    monkeypatch.setattr(adapter, "CANCEL_S", 0.05)
    await asyncio.wait_for(trigger.on_kill(), 20)
    assert len(control.calls("cancel")) == 1


async def test_sensor_keeps_its_hands_off_the_log_of_the_task(control: ScriptedControl) -> None:
    """A sensor for the same job has a log position of its own, or none, and keeps the task's."""
    operator, context = held()
    trigger = deferred(operator, context)
    handle = trigger.state["handle"]
    positions = CursorFile(trigger.state["identity"])
    positions.put({"lines": 1})
    waiting = {}
    for forward_logs in (False, True):
        sensor = AppSensor(task_id="job", handle=handle, deferrable=True, forward_logs=forward_logs)
        waiting[forward_logs] = deferred(sensor, make_context(sensor))
    control.open("go")
    for forward_logs in (False, True):
        outcome = await asyncio.wait_for(first(waiting[forward_logs]), 20)
        assert outcome["kind"] == "ended"
    assert (positions.get() or {})["lines"] == 1


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
    with pytest.raises(AirflowFailException, match="patience"):
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
