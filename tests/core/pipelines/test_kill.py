"""A kill from a signal handler ends the execution and the job, whatever happens just then."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, TransloadTimeout
from transload.pipelines import (
    AppCancelled,
    Detached,
    ExecutionOptions,
    Identity,
    Launch,
    Step,
)
from transload.runner import Runner
from transload.specs import AppState
from transload_testing.scripted import ScriptedControl, ScriptedScheduler, scripted_app
from transload_testing.steps import PlainStep

HELD = {"steps": [{"state": "RUNNING", "until": "go", "lines": ["hello"]}, "SUCCEEDED"]}
SOON = 20.0


@contextmanager
def killed_after(step: Step, seconds: float) -> Iterator[None]:
    """Have a real signal's handler kill a step, so many seconds from now."""
    before = signal.signal(signal.SIGUSR1, lambda number, frame: step.kill(asked=True))
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def held(runner: Runner, name: str, said: list[str] | None = None, **options: Any) -> PlainStep:
    """Return the step of an app that ends when it is cancelled."""
    lines: list[str] = [] if said is None else said
    return PlainStep(
        runner,
        Launch(app=scripted_app("a", HELD), scheduler="scripted"),
        Identity("t", ("n",), (name,)),
        ExecutionOptions(**options),
        said=lines.append,
    )


@pytest.mark.parametrize("step", range(12))
def test_at_every_point_of_its_life(control: ScriptedControl, runner: Runner, step: int) -> None:
    """From before the submit until it is followed, nothing is left running or waited for."""
    one = held(runner, str(step), poll_interval=0.05)
    began = time.monotonic()
    with killed_after(one, step * step * 0.002), pytest.raises((AppCancelled, Detached)):
        one.run()
    assert time.monotonic() - began < SOON
    assert set(control.started()) <= {call["app_id"] for call in control.calls("cancel")}


def test_while_a_scheduler_is_being_made(control: ScriptedControl) -> None:
    """The handler takes no lock, not even one that the interrupted thread holds."""

    def slow(session: str) -> ScriptedScheduler:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            time.sleep(0.01)
        return ScriptedScheduler(session)

    with Runner("host", {"scripted": slow}) as runner:
        one = held(runner, "slow")
        with killed_after(one, 0.2), pytest.raises((AppCancelled, Detached)):
            one.run()
    assert set(control.started()) <= {call["app_id"] for call in control.calls("cancel")}


def test_detached_at_once(control: ScriptedControl, runner: Runner) -> None:
    """With ``detach`` the handler's kill ends the waiting, and the app goes on."""
    one = held(runner, "detach", on_kill="detach", poll_interval=3600.0)
    one.start()
    began = time.monotonic()
    with killed_after(one, 0.2), pytest.raises(Detached, match="goes on"):
        one.follow()
    assert time.monotonic() - began < SOON
    assert control.calls("cancel") == []


def test_a_cancel_that_does_not_come_through_is_tried_again(
    control: ScriptedControl, runner: Runner
) -> None:
    """A kill during an outage reaches the app when the scheduler is back."""
    one = held(runner, "outage", poll_interval=0.05)
    one.start()
    control.outage()
    threading.Timer(1.5, control.outage, (False,)).start()
    with killed_after(one, 0.2), pytest.raises(AppCancelled):
        one.collect(one.follow())


def test_a_cancel_that_fails_for_want_of_something_is_tried_again(
    control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel that fails, as for want of a file descriptor, is tried again."""
    cancel, short = ScriptedScheduler.cancel, [True]

    def once_short(self: ScriptedScheduler, app_id: str) -> bool:
        if short and short.pop():
            raise OSError(errno.EMFILE, "Too many open files")
        return cancel(self, app_id)

    monkeypatch.setattr(ScriptedScheduler, "cancel", once_short)
    one = held(runner, "emfile", poll_interval=0.05)
    one.start()
    with killed_after(one, 0.2), pytest.raises(AppCancelled):
        one.collect(one.follow())


def test_the_end_of_an_earlier_generation_is_asked_for_until_it_is_heard(
    control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run ends what the run before left, and asks until it is heard, but says so once."""
    cancel, deaf = ScriptedScheduler.cancel, [True, True]
    said: list[str] = []

    def once_deaf(self: ScriptedScheduler, app_id: str) -> bool:
        if deaf and deaf.pop():
            raise SchedulerUnavailable("scripted")
        return cancel(self, app_id)

    def of(asking: int) -> PlainStep:
        launch = Launch(app=scripted_app("a", HELD), scheduler="scripted")
        who = Identity("t", ("n",), ("again",))
        return PlainStep(runner, launch, who, said=said.append, round=asking)

    handle = of(0).start()
    monkeypatch.setattr(ScriptedScheduler, "cancel", once_deaf)
    timer = threading.Timer(5, control.open, ("go",))
    timer.start()
    try:
        assert of(1).start() != handle
    finally:
        timer.cancel()
        timer.join()
    status = runner.status(handle)
    assert status is not None
    assert status.state is AppState.CANCELLED
    assert [line for line in said if "waiting for its end" in line] == [
        f"{handle}, of an earlier run: waiting for its end"
    ]
    control.open("go")


def test_a_limit_that_passes_in_an_outage_cancels_afterwards(
    control: ScriptedControl, runner: Runner
) -> None:
    """The host is told that the app was cancelled once that is true, and not before."""
    one = held(runner, "limit-outage", deadline=time.time() + 0.3, poll_interval=0.05)
    one.start()
    control.outage()
    timer = threading.Timer(1.5, control.outage, (False,))
    timer.start()
    try:
        with pytest.raises(TransloadTimeout, match="time limit"):
            one.follow()
    finally:
        timer.join()
    assert one.handle is not None
    status = runner.status(one.handle)
    assert status is not None
    assert status.cancel_requested or status.state is AppState.CANCELLED


def test_a_limit_that_passes_before_the_app_is_there(
    control: ScriptedControl, runner: Runner
) -> None:
    """Nothing is submitted after the limit, also if the scheduler was away.

    That is reported once.
    """
    said: list[str] = []
    one = held(runner, "limit-start", said, deadline=time.time() + 0.5)
    control.outage()
    with pytest.raises(
        TransloadTimeout, match="could not be cancelled: the orchestrator's time limit has passed"
    ):
        one.run()
    assert not one.give_up(asked=True), "nobody knows whether it is there"
    control.outage(False)
    assert one.give_up(asked=True)
    assert control.started() == []
    assert sum("cannot be reached, waiting" in line for line in said) == 1
    assert sum("could not be cancelled" in line for line in said) == 1, "one reason is told once"

    late = held(runner, "limit-late", deadline=time.time() - 1)
    with pytest.raises(
        TransloadTimeout, match="nothing was submitted: the orchestrator's time limit has passed"
    ):
        late.run()
    assert control.started() == []


def test_a_start_that_waits_says_why(control: ScriptedControl, runner: Runner) -> None:
    """One line when the scheduler cannot be reached at the start, one when it is back."""
    said: list[str] = []
    one = held(runner, "away-at-start", said)
    control.outage()
    timer = threading.Timer(0.5, control.outage, (False,))
    timer.start()
    one.start()
    timer.join()
    told = [line.partition(" ")[2] for line in said if "reached" in line or "back" in line]
    assert [line.partition(" (")[0] for line in told] == ["cannot be reached, waiting", "is back"]
    one.kill(asked=True)
    with pytest.raises(AppCancelled):
        one.collect(one.follow())


def test_a_limit_that_passes_during_a_submit_is_no_detach(
    control: ScriptedControl, runner: Runner
) -> None:
    """An asynchronous host's own limit ends what its submit brings about, whatever a kill would do
    to it.
    """
    app = scripted_app("a", {**HELD, "submit_seconds": 1.0})
    options = ExecutionOptions(on_kill="detach", deadline=time.time() + 0.3)
    one = PlainStep(
        runner, Launch(app=app, scheduler="scripted"), Identity("t", ("n",), ("slow",)), options
    )

    async def main() -> None:
        task = asyncio.ensure_future(one.run_async())
        await asyncio.sleep(0.5)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        one.give_up(asked=True)

    asyncio.run(main())  # which ends when its threads have
    assert control.started()
    assert control.started() == [call["app_id"] for call in control.calls("cancel")]


def test_a_persons_cancel_that_is_seen_late_is_no_limit(
    control: ScriptedControl, runner: Runner
) -> None:
    """A cancel that an orchestrator sees after a limit was not by the limit."""
    one = held(runner, "late-look", deadline=time.time() + 0.3)
    one.start()
    assert one.handle is not None
    runner.cancel(one.handle)
    runner.wait(one.handle)
    time.sleep(max(0.0, (one.options.deadline or 0) - time.time()))
    assert one.look().is_terminal()
    with pytest.raises(AppCancelled):
        one.collect()


def test_killed_during_a_submit_whose_answer_is_lost(
    control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a submit with a lost answer started is cancelled after a kill."""
    submit, begun, go = ScriptedScheduler.submit, threading.Event(), threading.Event()

    def lost(self: ScriptedScheduler, *args: Any) -> bool:
        submit(self, *args)
        begun.set()
        go.wait(SOON)
        raise SchedulerUnavailable("the answer was lost")

    async def main() -> None:
        task = asyncio.ensure_future(one.run_async())
        await asyncio.to_thread(begun.wait, SOON)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        go.set()

    monkeypatch.setattr(ScriptedScheduler, "submit", lost)
    one = held(runner, "lost-answer")
    asyncio.run(main())  # which ends when its threads have
    assert control.started()
    assert set(control.started()) == {call["app_id"] for call in control.calls("cancel")}


@contextmanager
def log_that_nobody_reads() -> Iterator[Callable[[str], None]]:
    """Give what a host writes its log by, to a pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)

    def write(text: str) -> None:
        os.write(writer, text.encode())

    try:
        yield write
    finally:
        os.close(writer)


@pytest.mark.parametrize("way", ["blocking", "asynchronous"])
@pytest.mark.parametrize("killed", [False, True])
def test_an_orchestrator_whose_log_breaks(
    control: ScriptedControl, runner: Runner, way: str, killed: bool
) -> None:
    """The end of whoever reads the log changes nothing for the job: it is looked after to its end,
    and a kill that was asked for cancels it.
    """
    steps = [{"state": "RUNNING", "lines": ["a"], "until": "go"}, {"state": "SUCCEEDED"}]
    script = {"steps": steps, "results": {"0": {"x": 1}}}
    launch = Launch(app=scripted_app("a", script), scheduler="scripted")
    options = ExecutionOptions(poll_interval=0.05, logging_interval=0.05)
    with log_that_nobody_reads() as broken:
        one = PlainStep(runner, launch, Identity("t", ("n",), ("broken",)), options, said=broken)
        end = one.kill if killed else control.open
        timer = threading.Timer(0.5, end, (True,) if killed else ("go",))
        timer.start()
        try:
            run = one.run if way == "blocking" else lambda: asyncio.run(one.run_async())
            if killed:
                with pytest.raises(AppCancelled):
                    run()
            else:
                assert run().value("x") == 1
        finally:
            timer.join()
    assert len(control.started()) == 1
    assert len(control.calls("cancel")) == killed
