"""The job of a step: found again, waited for elsewhere, looked at, and never there twice."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transload.errors import (
    AppFailed,
    ConfigError,
    SchedulerUnavailable,
    StateUnknown,
    TransloadError,
    TransloadTimeout,
)
from transload.pipelines import (
    Again,
    AppCancelled,
    AppLost,
    ExecutionOptions,
    Identity,
    Launch,
    where,
)
from transload.pipelines.errors import StillRunning
from transload.runner import Runner
from transload.schedulers import (
    AppDescription,
    ListAppResponse,
    LogPage,
    LogQuery,
    SchedulerBase,
    Submission,
)
from transload.specs import AppDef, AppState, AppStatus
from transload_testing.scripted import ScriptedControl, scripted_app
from transload_testing.scripted.scheduler import ENV_REACH, ScriptedScheduler
from transload_testing.steps import PlainStep

WHO = Identity("host", ("here",), ("step",))
HELD = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"], "results": {"0": {"x": 1}}}


def step_of(
    runner: Runner,
    script: Mapping[str, Any] | None = HELD,
    said: list[str] | None = None,
    *,
    launch: Launch | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> PlainStep:
    """Return a step whose job plays a script; with None as the script, one that only attaches."""
    lines: list[str] = [] if said is None else said
    made = ExecutionOptions(**{"poll_interval": 0.05, "logging_interval": 0.05, **(options or {})})
    if script is not None and launch is None:
        launch = Launch(app=scripted_app("a", script), scheduler="scripted")
    return PlainStep(runner, launch, WHO, made, said=lines.append, **more)


def event_of(runner: Runner, begun: PlainStep, **options: Any) -> dict[str, Any]:
    """Return the event with which another process ends its wait for a job, after JSON."""
    waiting = step_of(runner, None, options=options)
    waiting.attach(str(begun.handle), begun.cursor)
    made: dict[str, Any] = json.loads(json.dumps(asyncio.run(waiting.event(where()))))
    return made


# -- another process waits


def test_resume_collects(control: ScriptedControl, runner: Runner) -> None:
    """What another process has waited for is collected, and each line of the log comes once."""
    steps = [{"state": "RUNNING", "lines": ["one"], "until": "go"}, "SUCCEEDED"]
    begun = step_of(runner, {"steps": steps, "results": {"0": {"x": 1}}})
    begun.start()
    control.open("go")
    said: list[str] = []
    waiting = step_of(runner, None, said)
    waiting.attach(str(begun.handle))
    event = json.loads(json.dumps(asyncio.run(waiting.event(where()))))
    assert (event["kind"], event["handle"]) == ("ended", begun.handle)
    assert step_of(runner, None, said).resume(event).value("x") == 1
    assert sum(line.endswith(" one") for line in said) == 1
    assert len(control.started()) == 1


def test_resume_submits_nothing(control: ScriptedControl, runner: Runner) -> None:
    """A job that failed while another process waited is a failure of this try, and no new job."""
    begun = step_of(runner, {"steps": ["FAILED"]})
    begun.start()
    event = event_of(runner, begun)
    with pytest.raises(AppFailed):
        step_of(runner, {"steps": ["FAILED"]}).resume(event)
    control.vanish(control.started()[0])
    with pytest.raises(AppLost):
        step_of(runner).resume(event)
    assert len(control.started()) == 1


def test_a_limit_cancels_once_the_step_goes_on(control: ScriptedControl, runner: Runner) -> None:
    """The process that waits only says that a limit has passed."""
    begun = step_of(runner)
    begun.start()
    event = event_of(runner, begun, deadline=time.time() + 0.3)
    assert event["kind"] == "limit"
    assert control.calls("cancel") == []
    with pytest.raises(TransloadTimeout, match="time limit"):
        step_of(runner).resume(event)
    assert [call["app_id"] for call in control.calls("cancel")] == control.started()


def test_the_patience_is_spent_once(control: ScriptedControl, runner: Runner) -> None:
    """A step does not wait again for a scheduler for which another process has lost patience."""
    patience = {"patience": 2.0}
    begun = step_of(runner, options=patience)
    begun.start()
    control.outage()
    event = event_of(runner, begun, **patience)
    assert event["kind"] == "error"
    began = time.monotonic()
    with pytest.raises(StateUnknown):
        step_of(runner, None, options=patience).resume(event)
    assert time.monotonic() - began < 1.5
    control.outage(False)
    control.open("go")
    assert step_of(runner, None, options=patience).resume(event).value("x") == 1


def test_a_failed_wait_is_no_failure_of_the_job(control: ScriptedControl, runner: Runner) -> None:
    """Where another process cannot wait, this one does."""
    begun = step_of(runner)
    begun.start()
    waiting = step_of(runner, None)
    waiting.attach("nowhere://host/a-0")
    event = asyncio.run(waiting.event(where()))
    assert event["kind"] == "error"
    assert "nowhere" in event["message"]
    said: list[str] = []
    control.open("go")
    back = step_of(runner, HELD, said)
    assert back.resume({**event, "handle": begun.handle}).value("x") == 1
    assert any("waiting in place" in line for line in said)


@pytest.mark.parametrize(
    ("reach", "place", "kind"),
    [("host", "other", "elsewhere"), ("process", "", "elsewhere"), ("network", "other", "ended")],
)
def test_who_can_wait(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, reach: str, place: str, kind: str
) -> None:
    """A job that is seen from its own machine only is waited for there."""
    monkeypatch.setenv(ENV_REACH, reach)
    control.open("go")
    with Runner("host") as runner:
        begun = step_of(runner)
        begun.start()
        waiting = step_of(runner, None)
        waiting.attach(str(begun.handle))
        assert asyncio.run(waiting.event(place))["kind"] == kind


def test_follow_for_a_while(control: ScriptedControl, runner: Runner) -> None:
    """A host that may wait elsewhere first waits here, and an ended job is collected."""
    steps = [{"state": "RUNNING", "lines": ["hello"], "until": "go"}, "SUCCEEDED"]
    said: list[str] = []
    step = step_of(runner, {"steps": steps}, said)
    step.start()
    assert not step.follow_for(0.5)
    assert not any("SUCCEEDED" in line for line in said)
    control.open("go")
    assert step.follow_for(20.0)
    step.collect()
    assert sum(line.endswith(" hello") for line in said) == 1


# -- polls


def test_a_poll_says_running_through_an_outage(control: ScriptedControl, runner: Runner) -> None:
    """UNKNOWN for less than the patience is shown as RUNNING, and longer is an error."""
    steps = [{"state": "RUNNING", "until": "away"}, {"state": "UNKNOWN", "until": "back"}]
    step = step_of(runner, {"steps": [*steps, "SUCCEEDED"]})
    step.start()
    control.open("away")
    assert step.look().state is AppState.RUNNING
    assert step.look().state is AppState.RUNNING
    control.open("back")
    assert step.look().state is AppState.SUCCEEDED
    assert step.collect() is not None


def test_a_poll_has_the_last_lines_through_an_outage(
    control: ScriptedControl, runner: Runner
) -> None:
    """A scheduler that is away just after a poll has seen the end takes no line away."""
    steps = [{"state": "RUNNING", "until": "go"}, {"state": "SUCCEEDED", "lines": ["the end."]}]
    said: list[str] = []
    step = step_of(runner, {"steps": steps, "outage_at_end": 0.5}, said)
    step.start()
    assert step.look().state is AppState.RUNNING
    control.open("go")
    while not step.look().is_terminal():
        time.sleep(0.02)
    assert sum(line.endswith(" the end.") for line in said) == 1


def test_a_poll_ends_a_job_as_asked(control: ScriptedControl, runner: Runner) -> None:
    """A kill acts at the next look, and the job's end is seen by a later one."""
    step = step_of(runner)
    step.start()
    step.kill(asked=True)
    while not step.look().is_terminal():
        time.sleep(0.02)
    with pytest.raises(AppCancelled):
        step.collect()


# -- what a try finds


def test_a_log_goes_on_with_its_last_lines(control: ScriptedControl, runner: Runner) -> None:
    """A try that attaches shows the last 50 lines, and says where all of them are."""
    lines = [f"number {number}." for number in range(200)]
    steps = [{"state": "RUNNING", "lines": lines, "until": "go"}]
    script = {"steps": [*steps, {"state": "SUCCEEDED", "lines": ["the end."]}]}
    handle = step_of(runner, script).start()
    said: list[str] = []
    step = step_of(runner, script, said)
    threading.Timer(0.5, control.open, ("go",)).start()
    step.run()
    assert any(f"transload log {handle}" in line for line in said)
    shown = [line.partition(" ")[2] for line in said if line.endswith(".") and "/0 " in line]
    assert shown == [*lines[-50:], "the end."]


def test_a_loss_is_said_once(control: ScriptedControl, runner: Runner) -> None:
    """The first try that finds its job gone fails, and a retry of the host's submits the next."""
    first = step_of(runner).start()
    control.vanish(control.started()[0])
    with pytest.raises(AppLost, match="lost"):
        step_of(runner).start()
    said: list[str] = []
    assert step_of(runner, HELD, said, tried=1).start() != first
    assert any("is gone" in line for line in said)


class RescheduledStep(PlainStep):
    """A step whose host runs one try several times."""

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell the try that has submitted the job from another one."""
        return Again.SAME_TRY if kept == now else Again.NO


@pytest.mark.parametrize(("submitter", "jobs"), [(1, 1), (0, 2)])
def test_a_loss_is_the_end_of_the_try_that_had_the_job(
    control: ScriptedControl, runner: Runner, submitter: int, jobs: int
) -> None:
    """A try that goes on and finds its own job gone has failed, however often the host has tried."""
    hint = step_of(runner).start()
    control.vanish(control.started()[0])
    launch = Launch(app=scripted_app("a", HELD), scheduler="scripted")
    words = {"round": submitter}
    step = RescheduledStep(runner, launch, WHO, round=1, tried=1, hint=hint, hint_words=words)
    if jobs == 1:
        with pytest.raises(AppLost, match=hint):
            step.start()
    else:
        step.start()
    assert len(control.started()) == jobs


def test_a_retry_that_may_be_on_another_machine(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first retry that finds nothing where only this machine's jobs are seen says so."""
    monkeypatch.setenv(ENV_REACH, "host")
    with Runner("host") as runner:
        with pytest.raises(AppLost, match="another machine"):
            step_of(runner, tried=1).start()
        assert control.started() == []
        step_of(runner, tried=2).start()
    assert len(control.started()) == 1


def test_a_retry_on_the_machine_of_the_first_try(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all tries have one machine, the first retry that finds nothing submits at once."""
    monkeypatch.setenv(ENV_REACH, "host")
    with Runner("host") as runner:
        step_of(runner, tried=1, one_machine=True).start()
    assert len(control.started()) == 1


def test_a_hint_finds_a_job_where_it_was_submitted(
    control: ScriptedControl, tmp_path: Path
) -> None:
    """A handle that the host shows leads to a job that runs where the settings no longer go."""
    other = str(tmp_path / "other")
    made = {
        "scripted": ScriptedScheduler,
        "second": lambda session: ScriptedScheduler(session, other, name="second"),
    }
    with Runner("host", made) as runner:
        handle = step_of(runner).start()
        there = Launch(app=scripted_app("a", HELD), scheduler="second")
        said: list[str] = []
        assert step_of(runner, said=said, launch=there, hint=handle).start() == handle
        assert any("another place" in line for line in said)
        control.open("go")
        runner.wait(handle)
        control.vanish(control.started()[0])
        with pytest.raises(AppLost):
            step_of(runner, launch=there, hint=handle).start()


def test_a_job_that_cannot_be_cancelled_is_not_waited_for_for_ever(
    control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a person asks anew and the running job cannot be cancelled, patience ends the wait."""
    first = step_of(runner)
    first.start()

    def cancel(handle: str) -> None:
        raise SchedulerUnavailable("the engine refuses")

    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(runner, "cancel", cancel)
        with pytest.raises(StillRunning):
            step_of(runner, said=said, options={"patience": 0.5}, round=1).run()
    assert sum("could not be cancelled: the engine refuses" in line for line in said) == 1
    assert len(control.started()) == 1
    again = step_of(runner, options={"patience": 20.0}, round=1)
    again.start()
    assert len(control.started()) == 2
    control.open("go")
    assert again.run().value("x") == 1


def test_what_is_refused(control: ScriptedControl, runner: Runner) -> None:
    """A step without a launch cannot be started, nor one that was not started followed."""
    with pytest.raises(ConfigError, match="no launch"):
        step_of(runner, None).start()
    with pytest.raises(ConfigError, match="call start"):
        step_of(runner).follow()
    assert control.started() == []


# -- whatever happens


class Died(BaseException):
    """The process that looks after the job was killed."""


class World(SchedulerBase):
    """A scheduler in memory, and a process that dies at one of its calls.

    ``jobs`` has what it knows: a status, or None for a job that is gone. ``news`` is what each look
    at a job brings.
    """

    name = "memory"

    def __init__(self) -> None:
        self.session = "host"
        self.jobs: dict[str, AppStatus | None] = {}
        self.words: dict[str, Mapping[str, Any]] = {}
        self.news: list[AppStatus | None] = []
        self.away = 0
        self.calls_left = 0
        self.is_done = False
        self.kill: Callable[[int], None] = lambda number: None
        self.calls = 0

    def begin(self, calls_left: int, is_done: bool) -> None:
        """Begin a process that dies at a call, which is done before that or not."""
        self.calls, self.calls_left, self.is_done = 0, calls_left, is_done

    def _call(self, work: Callable[[], Any]) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return work()  # who waits for an end beside the process
        self.kill(self.calls)
        self.calls += 1
        if self.calls > self.calls_left:
            raise Died
        if self.calls < self.calls_left:
            return work()
        if self.is_done:
            work()
        raise Died

    def convert(self, app: AppDef, opts: Any) -> AppDef:
        """Return the definition."""
        return app

    def submit(self, request: Any, app_id: str, submission: Submission) -> bool:
        """Start a job, and check that there is no other one."""

        def start() -> bool:
            assert app_id not in self.jobs, "an id is submitted once"
            running = [
                each for each, status in self.jobs.items() if status and not status.is_terminal()
            ]
            assert running == [], "one job at a time"
            self.jobs[app_id] = AppStatus(AppState.RUNNING)
            self.words[app_id] = submission.asked
            return True

        return bool(self._call(start))

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return what the next piece of news makes of each job."""

        def look() -> dict[str, AppDescription | None]:
            for app_id in app_ids:
                status = self.jobs.get(app_id)
                if status is not None and status.cancel_requested:
                    self.jobs[app_id] = AppStatus(AppState.CANCELLED)
                elif status is not None and not status.is_terminal() and self.news:
                    self.jobs[app_id] = self.news.pop(0)
            return {app_id: self._described(app_id) for app_id in app_ids}

        found: dict[str, AppDescription | None] = self._call(look)
        return found

    def _described(self, app_id: str) -> AppDescription | None:
        status = self.jobs.get(app_id)
        if status is None:
            return None
        return AppDescription(app_id, status, asked=self.words[app_id])

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return all jobs."""

        def look() -> list[tuple[int, AppDescription | None]]:
            if self.away:
                self.away -= 1
                raise SchedulerUnavailable("no answer")
            return [(number, self._described(each)) for number, each in enumerate(self.jobs)]

        found: Sequence[tuple[int, AppDescription | None]] = self._call(look)
        return found

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Note that the end of each job was asked for."""

        def ask() -> set[str]:
            there = set()
            for app_id in app_ids:
                status = self.jobs.get(app_id)
                if status is not None:
                    there.add(app_id)
                if status is not None and not status.is_terminal():
                    self.jobs[app_id] = AppStatus(status.state, cancel_requested=True)
            return there

        found: set[str] = self._call(ask)
        return found

    def list(self) -> list[ListAppResponse]:
        """Return none."""
        return []

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return nothing."""
        return LogPage([], "end", complete=True)


EVENTS = st.sampled_from(["FAILED", "CANCELLED", "SUCCEEDED", "GONE", "PENDING", "ENDING"])
TRIES = st.lists(
    st.fixed_dictionaries(
        {
            "calls": st.integers(1, 12),
            "is_done": st.booleans(),
            "killed_at": st.integers(0, 20),
            "asked": st.booleans(),
            "away": st.sampled_from([0, 0, 0, 0, 1, 100]),
            "again": st.sampled_from([0, 0, 0, 1]),
            "tried": st.integers(0, 2),
            "meanwhile": EVENTS,
            "news": st.lists(EVENTS, max_size=3),
        }
    ),
    max_size=8,
)


def status_of(event: str) -> AppStatus | None:
    """Return what an event makes of a job."""
    if event == "GONE":
        return None
    if event == "ENDING":  # somebody has cancelled it
        return AppStatus(AppState.RUNNING, cancel_requested=True)
    return AppStatus(AppState[event])


@settings(max_examples=60, deadline=None)
@given(tries=TRIES)
def test_never_two_jobs(tries: list[dict[str, Any]]) -> None:
    """No id is submitted twice, nor a job while another one runs, whatever happens.

    Processes die at any call of the scheduler, are killed, or lose the scheduler; jobs end, vanish
    and are preempted; people run the step again. `World.submit` checks both.
    """
    world = World()
    asking = 0
    with Runner("host", {"memory": lambda session: world}) as runner:
        for each in tries:
            asking += each["again"]
            world.away = each["away"]
            world.news = [status_of(event) for event in each["news"]]
            world.begin(each["calls"], each["is_done"])
            step = PlainStep(
                runner,
                Launch(app=scripted_app("a"), scheduler="memory"),
                WHO,
                ExecutionOptions(patience=0.05, poll_interval=0.02),
                asked=lambda each=each: each["asked"],
                tried=each["tried"],
                round=asking,
            )
            world.kill = lambda number, each=each, step=step: (
                step.kill() if number == each["killed_at"] else None
            )
            try:
                with step.giving_up_on_kill():
                    step.start()
                    while not step.look().is_terminal():
                        pass
                    step.collect()
            except (Died, TransloadError):
                pass
            for app_id, status in world.jobs.items():
                if status is not None and not status.is_terminal():
                    world.jobs[app_id] = status_of(each["meanwhile"])
