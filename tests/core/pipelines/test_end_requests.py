"""A job is cancelled only if somebody asked for the end, and not by any other end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.pipelines import (
    AppCancelled,
    Asked,
    Detached,
    ExecutionOptions,
    Identity,
    Launch,
    interrupted,
)
from transload.pipelines.end_requests import LONGEST
from transload.runner import Runner
from transload.specs import AppDef, AppState, AppStatus, Role
from transload_testing.scripted import ScriptedControl, scripted_app
from transload_testing.steps import PlainStep

HELD = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"], "results": {"0": {"x": 1}}}


def held(runner: Runner, **more: Any) -> PlainStep:
    """Return the execution of an app that runs until it is let on, or cancelled."""
    launch = Launch(app=scripted_app("a", HELD), scheduler="scripted")
    options = ExecutionOptions(poll_interval=0.05, on_kill=more.pop("on_kill", "cancel"))
    return PlainStep(runner, launch, Identity("host", ("here",), ("unit",)), options, **more)


def killed_while_it_runs(one: PlainStep, asked: bool | None = None) -> None:
    """Run an execution that is killed once its app runs."""
    one.start()
    timer = threading.Timer(0.2, one.kill, (asked,))
    timer.start()
    try:
        one.collect(one.follow())
    finally:
        timer.join()


@pytest.mark.parametrize(
    "asked", [lambda: False, None], ids=["nobody asked", "nobody can be asked"]
)
def test_it_goes_on_and_is_found_again(
    control: ScriptedControl, runner: Runner, asked: Asked | None
) -> None:
    """A kill without a wish leaves the app, says how to end it, and the next try collects its
    results.
    """
    said: list[str] = []
    one = held(runner, said=said.append, asked=asked or interrupted)
    with pytest.raises(Detached, match="goes on") as caught:
        killed_while_it_runs(one)
    assert not caught.value.asked
    assert control.calls("cancel") == []
    assert [line for line in said if "was not asked for" in line and str(one.handle) in line]
    control.open("go")
    assert held(runner).run().value("x") == 1
    assert len(control.started()) == 1


def test_who_knows_is_not_asked(control: ScriptedControl, runner: Runner) -> None:
    """A host that says with the kill that somebody asked is believed at once."""
    with pytest.raises(AppCancelled):
        killed_while_it_runs(held(runner, asked=lambda: False), asked=True)


def test_detach_holds_whoever_asked(control: ScriptedControl, runner: Runner) -> None:
    """With ``on_kill="detach"`` an end that somebody asked for leaves the app too, and nobody is
    asked.
    """
    asking: list[int] = []

    def asked() -> bool:
        asking.append(1)
        return True

    with pytest.raises(Detached) as caught:
        killed_while_it_runs(held(runner, on_kill="detach", asked=asked))
    assert caught.value.asked
    assert (asking, control.calls("cancel")) == ([], [])


def test_a_host_that_answers_late(control: ScriptedControl, runner: Runner) -> None:
    """A host that is away for a moment is asked again."""
    answers = [None, None, True]
    with pytest.raises(AppCancelled):
        killed_while_it_runs(held(runner, asked=lambda: answers.pop(0)))
    assert answers == []


def test_a_host_that_cannot_answer(control: ScriptedControl, runner: Runner) -> None:
    """A host that fails or hangs blocks nobody for more than a few seconds, and the job goes on."""

    def fails() -> bool:
        raise OSError("no route to host")

    never = threading.Event()
    for asked in (fails, never.wait):
        began = time.monotonic()
        with pytest.raises(Detached):
            killed_while_it_runs(held(runner, asked=asked))
        assert time.monotonic() - began < LONGEST + 5
    never.set()
    assert control.calls("cancel") == []


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_is_raised(
    control: ScriptedControl, runner: Runner, raised: type[BaseException]
) -> None:
    """Ctrl-C is a person's wish. A signal's exception and a cancelled task are not."""

    def stop(status: AppStatus) -> None:
        try:
            raise OSError("something else is handled meanwhile")
        except OSError:
            raise raised from None

    with pytest.raises(raised):
        held(runner, changed=stop, asked=interrupted).run()
    assert len(control.calls("cancel")) == (1 if raised is KeyboardInterrupt else 0)


async def test_a_cancelled_task(control: ScriptedControl, runner: Runner) -> None:
    """A task of an event loop that something cancels leaves its app, one whose submit is under way
    too.
    """
    for seconds in (0.0, 0.6):
        launch = Launch(
            app=scripted_app("a", {**HELD, "submit_seconds": seconds}), scheduler="scripted"
        )
        who = Identity("host", ("here",), (str(seconds),))
        one = PlainStep(runner, launch, who, asked=interrupted)
        task = asyncio.create_task(one.run_async())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0.6)  # whoever submits has looked whether it is to be undone
    assert len(control.started()) == 2
    assert control.calls("cancel") == []


PROGRAM = """
import asyncio, os, signal, sys, time
from transload.pipelines import Identity, Launch, interrupted
from transload.runner import Runner
from transload.specs import AppDef, Role
from transload_testing.steps import PlainStep

def leave(number, frame):
    raise SystemExit(128 + number)

how, mark = sys.argv[1:3]
signal.signal(signal.SIGTERM, leave)
inner = AppDef("inner", [Role("main", "", entrypoint="sleep", args=["600"])])
with Runner("host") as runner:
    launch = Launch(app=inner, scheduler="local")
    one = PlainStep(runner, launch, Identity("host", ("here",), ("inner",)), asked=interrupted)
    one.start()
    open(mark, "w").write(f"{os.getpid()} {one.handle}")
    asyncio.run(one.run_async()) if how == "async" else one.run()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that runs a job of its own and waits for it."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def _said(mark: Path, eventually: Callable[..., Any]) -> tuple[int, str]:
    """Return the process and the job of a program, once both are there."""
    words = eventually(
        lambda: mark.exists() and len(found := mark.read_text().split()) == 2 and found, 60
    )
    return int(words[0]), words[1]


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize(
    ("number", "state"), [(signal.SIGINT, "CANCELLED"), (signal.SIGTERM, "RUNNING")]
)
def test_signals_to_a_program(
    transload_home: Path,
    tmp_path: Path,
    program: Path,
    how: str,
    number: signal.Signals,
    state: str,
    eventually: Callable[..., Any],
) -> None:
    """Ctrl-C cancels the job of a program, also where an event loop answers it.

    SIGTERM leaves the job.
    """
    mark = tmp_path / "mark"
    process = subprocess.Popen(
        [sys.executable, str(program), how, str(mark)], stderr=subprocess.DEVNULL
    )
    _, handle = _said(mark, eventually)
    with Runner("host") as runner:
        eventually(lambda: runner.status(handle).state is AppState.RUNNING, 30)
        time.sleep(0.5)  # it has begun to wait
        process.send_signal(number)
        process.wait(timeout=60)
        eventually(lambda: runner.status(handle).state.name == state, 10)
        runner.cancel(handle)
        eventually(lambda: runner.status(handle).state is AppState.CANCELLED, 30)


OUTER = 'python="$0"; "$python" "$@" & echo $$ > "$MARK.outer"; wait'


@pytest.mark.parametrize(
    "end",
    ["cancel", "kill outer", pytest.param("limit", marks=pytest.mark.slow)],
)
def test_a_program_inside_a_job(
    transload_home: Path, tmp_path: Path, program: Path, end: str, eventually: Callable[..., Any]
) -> None:
    """The jobs of a cancelled job are cancelled with it. After any other end they go on."""
    mark = tmp_path / "mark"
    words = ["-c", OUTER, sys.executable, str(program), "sync", str(mark)]
    env = {"MARK": str(mark), "TRANSLOAD_HOME": str(transload_home)}
    role = Role("main", "", entrypoint="sh", args=words, env=env)
    with Runner("host") as runner:
        outer = runner.run(AppDef("outer", [role], timeout=20 if end == "limit" else None), "local")
        inner_pid, inner = _said(mark, eventually)
        eventually(lambda: runner.status(inner).state is AppState.RUNNING, 30)
        if end == "cancel":
            runner.cancel(outer)
        elif end.startswith("kill"):
            pid = inner_pid if end == "kill inner" else int(Path(f"{mark}.outer").read_text())
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: runner.status(outer).is_terminal(), 60)
        if end == "cancel":
            eventually(lambda: runner.status(inner).state is AppState.CANCELLED, 10)
        else:
            time.sleep(2.0)  # long enough for a cancel, if anybody had sent one
            assert runner.status(inner).state is AppState.RUNNING
            assert not runner.status(inner).cancel_requested
            runner.cancel(inner)
            eventually(lambda: runner.status(inner).state is AppState.CANCELLED, 30)


@pytest.mark.parametrize(
    ("outer", "cancelled"),
    [
        ("cancelled", True),
        ("runs", False),
        ("gone", False),
        ("unknown scheduler", False),
        ("away", False),
    ],
)
def test_what_the_own_job_says(
    control: ScriptedControl,
    runner: Runner,
    monkeypatch: pytest.MonkeyPatch,
    outer: str,
    cancelled: bool,
) -> None:
    """Inside a job, that job decides. One that is gone, unknown or out of reach did not ask."""
    handle = runner.run(
        scripted_app("outer", {"steps": [{"state": "RUNNING", "until": "never"}]}), "scripted"
    )
    if outer == "cancelled":
        runner.cancel(handle)
    elif outer == "gone":
        handle = "scripted://host/never-there"
    elif outer == "unknown scheduler":
        handle = "elsewhere://host/outer"
    one = held(runner, asked=interrupted)
    one.start()
    monkeypatch.setenv("TRANSLOAD_JOB_ID", handle)
    if outer == "away":
        status = runner.status

        def away(asked: str, **more: Any) -> Any:
            if asked == handle:
                raise SchedulerUnavailable("scripted")
            return status(asked, **more)

        monkeypatch.setattr(runner, "status", away)
    before = len(control.calls("cancel"))
    with pytest.raises(AppCancelled if cancelled else Detached):
        killed_while_it_runs(one)
    assert len(control.calls("cancel")) - before == int(cancelled)


def test_ctrl_c_inside_a_job_is_no_persons(
    control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KeyboardInterrupt inside a job comes from its scheduler, so the own job is asked."""
    handle = runner.run(
        scripted_app("outer", {"steps": [{"state": "RUNNING", "until": "never"}]}), "scripted"
    )
    monkeypatch.setenv("TRANSLOAD_JOB_ID", handle)

    def stop(status: AppStatus) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held(runner, changed=stop, asked=interrupted).run()
    assert control.calls("cancel") == []
