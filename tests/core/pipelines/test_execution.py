"""Test what an orchestrator calls. Crashes are in the conformance suite."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transload.errors import (
    AppFailed,
    ConfigError,
    SpecError,
    StateUnknown,
    SubmitError,
    TransloadTimeout,
)
from transload.pipelines import (
    AppCancelled,
    AppLost,
    Detached,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    app_id_of,
    dry_run,
    host_runner,
)
from transload.plugins import AppEvent, get_plugins, hookimpl
from transload.runner import Runner
from transload.runtime.tracking import app_folder
from transload.specs import AppDef, AppState, AppStatus, Role
from transload_testing.scripted import ScriptedControl, scripted_app
from transload_testing.scripted.scheduler import ScriptedScheduler, create_scheduler
from transload_testing.steps import PlainStep

WHO = Identity("host", ("here",), ("flow", "step"))
HELD = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"], "results": {"0": {"x": 1}}}


def execution(
    runner: Runner,
    script: dict[str, Any] | None = None,
    who: Identity = WHO,
    *,
    name: str = "a",
    **more: Any,
) -> PlainStep:
    """Return an execution with fast settings."""
    fields = ExecutionOptions.__dataclass_fields__
    options = {
        "poll_interval": 0.05,
        "logging_interval": 0.05,
        **{k: more.pop(k) for k in list(more) if k in fields},
    }
    launch = more.pop("launch", None) or Launch(
        app=scripted_app(name, script), scheduler="scripted"
    )
    return PlainStep(runner, launch, who, ExecutionOptions(**options), **more)


@pytest.mark.parametrize("polls", [False, True])
def test_a_scheduler_that_is_away_for_a_while(
    control: ScriptedControl, runner: Runner, polls: bool
) -> None:
    """One line when it cannot be reached, one when it is back, however often it was asked
    meanwhile.
    """
    said: list[str] = []
    steps = [
        "RUNNING",
        {"state": "UNAVAILABLE", "seconds": 0.6},
        {"state": "RUNNING", "seconds": 0.1},
        "SUCCEEDED",
    ]
    done = execution(runner, {"steps": steps}, said=said.append)
    done.start()
    while polls and not done.look().is_terminal():
        time.sleep(0.02)
    done.collect(done.follow())
    told = [
        line.removeprefix(f"{done.handle} ") for line in said if "reached" in line or "back" in line
    ]
    assert told == ["cannot be reached, waiting (as its script says)", "is back"]


def test_why_it_waits_in_a_queue(control: ScriptedControl, runner: Runner) -> None:
    """One line for each reason that the engine gives, until the app has started."""
    said: list[str] = []
    steps = [
        {"state": "PENDING", "msg": "Priority", "until": "Priority"},
        {"state": "PENDING", "msg": "Resources:\nno GPU", "until": "Resources"},
        {"state": "RUNNING", "msg": "on node1", "seconds": 0.1},
        "SUCCEEDED",
    ]

    def log(line: str) -> None:
        said.append(line)
        for reason in ("Priority", "Resources"):
            if f"is PENDING: {reason}" in line:
                control.open(reason)

    done = execution(runner, {"steps": steps}, said=log)
    done.run()
    told = [
        line.removeprefix(f"{done.handle} ")
        for line in said
        if "is PENDING" in line or "node1" in line
    ]
    assert told == ["is PENDING: Priority", "is PENDING: Resources: no GPU"]


async def test_run_async(control: ScriptedControl, runner: Runner) -> None:
    """Many at once, one thread, the same results."""
    runs = [
        execution(runner, HELD, Identity("host", ("here",), (str(n),))).run_async()
        for n in range(20)
    ]
    task = asyncio.gather(*runs)
    async with asyncio.timeout(20):
        while len(control.started()) < 20:
            await asyncio.sleep(0.01)
    assert len([each for each in threading.enumerate() if each.name == "transload-states"]) <= 1
    control.open("go")
    assert [each.value("x") for each in await task] == [1] * 20


def test_a_cancel_is_tried_again_with_pauses(
    control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a scheduler is away, the end of an app is asked for with growing pauses, however often
    somebody looks.
    """
    from transload.errors import SchedulerUnavailable
    from transload.pipelines import step

    now, asked = [100.0], list[float]()

    def cancel(self: Runner, handle: str) -> bool:
        asked.append(now[0])
        raise SchedulerUnavailable("away")

    made = execution(runner, HELD)
    made.start()
    clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    monkeypatch.setattr(step, "time", clock)
    monkeypatch.setattr(Runner, "cancel", cancel)
    made.kill(asked=True)
    for _ in range(4 * 100):
        made.look()
        now[0] += 0.25
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert pauses[0] == 1
    assert pauses == sorted(pauses)
    assert 20 < pauses[-1] <= 30
    monkeypatch.undo()
    made.cancel()


async def test_a_cancel_that_comes_with_news_is_not_lost(
    control: ScriptedControl, runner: Runner
) -> None:
    """Stopping the wait at the very moment of an observation stops it, and leaves the app alone."""
    script = {"steps": [{"state": "RUNNING", "until": "go", "lines": ["hello"]}, "SUCCEEDED"]}
    loop = asyncio.get_running_loop()
    for number in range(5):
        seen = asyncio.Event()
        run = execution(
            runner,
            script,
            Identity("host", ("here",), (str(number),)),
            said=lambda _, seen=seen: loop.call_soon_threadsafe(seen.set),
        )
        run.start()
        task = asyncio.create_task(run.follow_async())
        await asyncio.wait_for(seen.wait(), 10)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        assert done, "the cancel was swallowed"
        assert task.cancelled()
    assert control.calls("cancel") == []


async def test_cancelling_the_task_in_the_middle_of_the_submit(
    control: ScriptedControl, runner: Runner
) -> None:
    """A submit under way when the task is cancelled is undone."""
    task = asyncio.create_task(
        execution(runner, {**HELD, "submit_seconds": 0.3}, asked=lambda: True).run_async()
    )
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    end = time.monotonic() + 10
    while control.started() and not control.calls("cancel"):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.4)  # the thread that submits has ended, unless the machine is busy
    # either nothing was started, or it was cancelled
    while len(control.started()) != len(control.calls("cancel")):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_poll(control: ScriptedControl, runner: Runner) -> None:
    """A host that asks now and then sees states and logs, and is told if patience is exhausted."""
    said: list[str] = []

    def lines() -> list[str]:
        return [line for line in said if "/0 " in line]

    steps = [
        {"state": "RUNNING", "lines": ["one"], "until": "a"},
        {"state": "UNKNOWN", "until": "b"},
        {"state": "SUCCEEDED", "lines": ["two"]},
    ]
    one = execution(runner, {"steps": steps}, patience=0.05, said=said.append)
    handle = one.start()
    assert one.look().state is AppState.RUNNING
    assert lines() == ["main/0 one"]
    control.open("a")
    assert one.look().state is AppState.RUNNING
    time.sleep(0.06)
    with pytest.raises(StateUnknown):
        one.look()
    control.open("b")
    assert one.look(runner.status_many([handle])[handle], asked=True).is_terminal()
    assert lines() == ["main/0 one", "main/0 two"]
    assert one.collect().state is AppState.SUCCEEDED
    control.vanish(app_id_of(WHO, 0))
    with pytest.raises(AppLost):
        one.look()


class Stop(BaseException):
    """What a host's signal handler raises."""


def test_exception_of_a_signal_cancels(control: ScriptedControl, runner: Runner) -> None:
    """What is no ordinary error is a kill, as somebody wished."""

    def stop(status: AppStatus) -> None:
        raise Stop

    with pytest.raises(Stop):
        execution(runner, HELD, changed=stop, asked=lambda: True).run()
    assert len(control.calls("cancel")) == 1


def test_killed_while_looking_for_the_latest_attempt(
    control: ScriptedControl, runner: Runner
) -> None:
    """A host that is stopped before it has found its app cancels the attempt that runs, not the one
    that failed.
    """
    with pytest.raises(AppFailed):
        execution(runner, {"steps": [{"state": "FAILED"}]}).run()
    execution(runner, HELD).start()
    failed, running = control.started()
    one = execution(runner, HELD)
    one.kill(asked=True)
    with pytest.raises(Detached, match="before the job was submitted"):
        one.run()
    assert [each["app_id"] for each in control.calls("cancel")] == [running]
    assert control.started() == [failed, running]


def test_cancel_in_spite_of_detach(control: ScriptedControl, runner: Runner) -> None:
    """A host's own limit cancels an app that a kill would leave alone, also before its handle was
    handed over.
    """
    one = execution(runner, HELD, on_kill="detach")
    one.cancel()  # there is nothing yet
    one.start()
    one.give_up(asked=True)
    assert control.calls("cancel") == []
    one.cancel()
    assert [each["app_id"] for each in control.calls("cancel")] == control.started()


@pytest.mark.parametrize(
    ("steps", "options", "says"),
    [
        ([{"state": "SUBMITTED"}], {"schedule_timeout": 0.2}, "schedule_timeout"),
        ([{"state": "PENDING"}], {"startup_timeout": 0.2}, "startup_timeout"),
        ([{"state": "RUNNING"}], {"deadline": 0.2}, "time limit"),
    ],
)
def test_limits_cancel(
    control: ScriptedControl, runner: Runner, steps: list[Any], options: dict[str, float], says: str
) -> None:
    """An app that passes a limit is cancelled, and the host told which limit it was."""
    if "deadline" in options:
        options = {"deadline": time.time() + options["deadline"]}
    with pytest.raises(TransloadTimeout, match=says):
        execution(runner, {"steps": steps}, **options).run()
    assert len(control.calls("cancel")) == 1


def test_final_states_of_hosts_whose_restart_is_no_retry(
    control: ScriptedControl, runner: Runner
) -> None:
    """With a narrower policy, what was cancelled or failed stays so when the host looks again."""
    for script, error in (
        ({"steps": ["FAILED"]}, AppFailed),
        ({"steps": ["RUNNING", "CANCELLED"]}, AppCancelled),
    ):
        who = Identity("host", ("here",), (error.__name__,))
        for _ in range(2):
            with pytest.raises(error):
                execution(runner, script, who, resubmit_on=frozenset()).run()
    assert len(control.started()) == 2


@pytest.fixture
def second(control: ScriptedControl, tmp_path: Path) -> ScriptedControl:
    """Another scheduler, to which somebody points a host that has an app on the first one."""
    return ScriptedControl(tmp_path / "second")


@pytest.fixture
def both(control: ScriptedControl, second: ScriptedControl) -> Iterator[Runner]:
    """A runner with both schedulers."""

    def other(session: str, **params: Any) -> ScriptedScheduler:
        return ScriptedScheduler(session, str(second.folder.root))

    with Runner("host", {"scripted": create_scheduler, "second": other}) as made:
        yield made


def test_an_app_is_looked_for_where_it_was_submitted(
    control: ScriptedControl, second: ScriptedControl, both: Runner
) -> None:
    """A host whose scheduler was changed between two runs attaches to the app on the old one, and
    starts no second.
    """
    hint = execution(both, HELD).start()
    elsewhere = Launch(app=scripted_app("a", HELD), scheduler="second")
    said: list[str] = []
    again = execution(both, launch=elsewhere, hint=hint, said=said.append)
    assert again.start() == hint == f"scripted://host/{app_id_of(WHO, 0)}"
    assert any("another place" in line for line in said)
    control.open("go")
    assert again.collect(again.follow()).value("x") == 1
    assert (len(control.started()), second.started()) == (1, [])
    assert execution(both, launch=elsewhere, hint=hint).start() == hint


def test_the_next_attempt_goes_where_the_host_says_now(
    control: ScriptedControl, second: ScriptedControl, both: Runner
) -> None:
    """What failed on the old scheduler is answered on the new one."""
    failed = execution(both, {"steps": ["FAILED"]})
    with pytest.raises(AppFailed):
        failed.run()
    elsewhere = Launch(app=scripted_app("a", {}), scheduler="second")
    again = execution(both, launch=elsewhere, hint=failed.handle)
    assert again.run().state is AppState.SUCCEEDED
    assert second.started() == [app_id_of(WHO, 1)]


def test_a_loss_on_the_old_scheduler_is_reported_once(
    control: ScriptedControl, second: ScriptedControl, both: Runner
) -> None:
    """A job that is gone is lost wherever it was. The retry starts at the present place."""
    hint = execution(both, HELD).start()
    control.vanish(app_id_of(WHO, 0))
    elsewhere = Launch(app=scripted_app("a", {}), scheduler="second")
    with pytest.raises(AppLost, match="scripted://"):
        execution(both, launch=elsewhere, hint=hint).run()
    again = execution(both, launch=elsewhere, hint=hint, tried=1)
    assert again.run().state is AppState.SUCCEEDED
    assert second.started() == [app_id_of(WHO, 1)]


def test_a_changed_definition_is_attached_to_and_said(
    control: ScriptedControl, runner: Runner
) -> None:
    """Ids decide, and a digest that differs is logged."""
    said: list[str] = []
    execution(runner, HELD).start()
    execution(runner, {**HELD, "exit_code": 4}, said=said.append).start()
    assert any("another definition" in line for line in said)
    said.clear()
    execution(runner, HELD, said=said.append).start()
    assert not any("another definition" in line for line in said)
    assert len(control.started()) == 1


def train(x: int, replicas: int = 1, tracker_base: str = "") -> AppDef:
    """Train something.

    Args:
        x: a number
        replicas: how many
        tracker_base: where results go
    """
    script = {"results": {"0": {"x": x}}}
    role = Role(
        "main",
        "i",
        entrypoint="e",
        args=[tracker_base],
        num_replicas=replicas,
        metadata={"scripted": script},
    )
    return AppDef("train", [role])


def test_upstream_results_are_launch_parameters(control: ScriptedControl, runner: Runner) -> None:
    """The output of one job is argument and number of replicas of the next.

    tracker_base is the job's own folder.
    """
    first = execution(
        runner, launch=Launch(component=train, args={"x": 3}, scheduler="scripted")
    ).run()
    again = Launch(
        component=train, args={"x": 1, "replicas": str(first.value("x"))}, scheduler="scripted"
    )
    execution(runner, who=Identity("host", ("here",), ("next",)), launch=again).run()
    record = control.folder.record(control.started()[1])
    assert record is not None
    role = AppDef.from_json(record["app"]).roles[0]
    assert role.num_replicas == 3
    assert role.args == [record["tracker_base"]]


@pytest.mark.parametrize("as_typed", [False, True])
def test_results_are_read_where_the_argument_says(
    control: ScriptedControl, runner: Runner, tmp_path: Path, as_typed: bool
) -> None:
    """A ``tracker_base`` among the component's own arguments is where the app reports, and where
    one looks.
    """
    mine = str(tmp_path / "mine")
    args: Any = ["--x", "3", "--tracker_base", mine] if as_typed else {"x": 3, "tracker_base": mine}
    results = execution(
        runner, launch=Launch(component=train, args=args, scheduler="scripted")
    ).run()
    (app_id,) = control.started()
    assert results.looked_in == [app_folder(mine, app_id), mine]
    assert results.value("x") == 3


def test_settings_of_the_scheduler_count(
    control: ScriptedControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracker base that is set for the scheduler reaches the component, as it reaches the job."""
    base = f"{tmp_path}/of/${{app_id}}"
    monkeypatch.setenv("TRANSLOAD_SETTINGS", f"schedulers.scripted.tracker_base = '{base}'")
    with Runner("host") as runner:
        execution(runner, launch=Launch(component=train, args={"x": 3}, scheduler="scripted")).run()
    (app_id,) = control.started()
    record = control.folder.record(app_id)
    assert record is not None
    given = f"{tmp_path}/of/{app_id}"
    assert record["tracker_base"] == app_folder(given, app_id)
    assert AppDef.from_json(record["app"]).roles[0].args == [given]


def test_an_id_is_completed_by_the_options_in_force(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an id carries more than a name, an option of the settings counts like one that the host
    gives.
    """
    monkeypatch.setenv("TRANSLOAD_SETTINGS", "schedulers.scripted.api_key = 'prod'")
    runner = Runner("host")
    scheduler = runner.scheduler("scripted")

    def qualified(app_id: str, opts: Any) -> str:
        return app_id if ":" in app_id else f"{opts.api_key or 'default'}:{app_id}"

    monkeypatch.setattr(scheduler, "qualified_id", qualified, raising=False)
    assert runner.qualified_id("a", "scripted") == "prod:a"
    assert runner.qualified_id("a", "scripted", {"api_key": "dev"}) == "dev:a"
    one = execution(runner, {})
    one.run()
    assert one.handle is not None
    assert control.started() == [f"prod:{app_id_of(WHO, 0)}"]
    runner.close()


def test_retry_product_is_logged_once(control: ScriptedControl, runner: Runner) -> None:
    """The host learns once how retries multiply."""
    said: list[str] = []
    app = scripted_app("a")
    app.roles[0].max_retries = 2
    execution(
        runner, launch=Launch(app=app, scheduler="scripted"), said=said.append, host_retries=3
    ).run()
    assert sum("12 starts" in line for line in said) == 1


def test_wrong_things_start_nothing(control: ScriptedControl, runner: Runner) -> None:
    """An unknown scheduler, an unknown option, a bad spec, a refused submit."""
    for launch, error in (
        (Launch(app=scripted_app("a"), scheduler="scriptde"), ConfigError),
        (Launch(app=scripted_app("a"), scheduler="scripted", cfg={"scrip": "x"}), ConfigError),
        (Launch(app="{}", scheduler="scripted"), SpecError),
        (
            Launch(app=scripted_app("a", {"submit_error": "permanent"}), scheduler="scripted"),
            SubmitError,
        ),
    ):
        with pytest.raises(error) as caught:
            execution(runner, launch=launch).run()
        assert "\n" not in str(caught.value)
    assert control.started() == []


def test_dry_run(control: ScriptedControl, runner: Runner) -> None:
    """A plan shows what would be submitted, and nothing is started."""
    assert '"app"' in repr(execution(runner, HELD).plan())
    assert control.calls("submit") == []


def test_page(control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's page goes before the scheduler's. What is no full address is no page."""
    from transload.plugins import get_plugins
    from transload.runner import Job

    pages: list[str | None] = ["/a/folder", None]
    job = runner.job(execution(runner, {}).start())
    described = job.description()
    assert described is not None
    described.status.ui_url = "https://engine.example/app"
    monkeypatch.setattr(Job, "description", lambda self: described)
    monkeypatch.setattr(get_plugins(), "app_link", lambda handle: pages[0])
    assert job.page() == "https://engine.example/app"
    pages[0] = "http://reports.example/app"
    assert job.page() == "http://reports.example/app"
    described.status.ui_url = pages[0] = None
    object.__setattr__(described, "log_url", "https://engine.example/logs")
    assert job.page() == "https://engine.example/logs"
    object.__setattr__(described, "log_url", "/a/folder")
    assert job.page() is None


def test_dry_run_of_a_host(control: ScriptedControl) -> None:
    """An adapter shows the request of the first attempt, by the runner that steps share."""
    text = dry_run("host", Launch(component="utils.echo", args={"msg": "hi"}, scheduler="scripted"))
    assert '"hi"' in text
    assert control.calls("submit") == []


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (AppCancelled(AppStatus(AppState.CANCELLED), "x"), Ending.CANCELLED),
        (AppFailed(AppStatus(AppState.FAILED), "x"), Ending.FAILED),
        (AppLost("h://s/a"), Ending.FAILED),
        (SubmitError("x", transient=True), Ending.FAILED),
        (TransloadTimeout("x"), Ending.TIMEOUT),
        (StateUnknown("h://s/a", 1.0), Ending.UNKNOWN),
        (Detached(None), Ending.DETACHED),
        (SpecError("x"), Ending.MISCONFIGURED),
        (ConfigError("x"), Ending.MISCONFIGURED),
        (RuntimeError("x"), Ending.FAILED),
    ],
)
def test_endings(error: BaseException, ending: Ending) -> None:
    """Each exception stands for one ending."""
    assert Ending.of(error) is ending


def test_runner_of_a_host(control: ScriptedControl) -> None:
    """Units of work of one host share a runner, whose jobs do not inherit the environment."""
    assert host_runner("h") is host_runner("h")
    assert host_runner("h") is not host_runner("h", inherit_env=True)
    assert host_runner("h").name() == "h"


def test_a_host_that_polls_tells_of_changes(runner: Runner) -> None:
    """Plugins are told of the end of an app that is only polled, and of one that ended while nobody
    looked.
    """
    events: list[AppEvent] = []

    class Listener:
        @hookimpl
        def transload_app_event(self, event: AppEvent) -> None:
            events.append(event)

    get_plugins().register(Listener(), "listener")
    try:
        first = execution(runner)
        first.start()
        deadline = time.monotonic() + 10
        while not first.look().is_terminal() and time.monotonic() < deadline:
            time.sleep(0.01)
        polled, events[:] = [event.state.name for event in events], []
        second = execution(runner)
        second.start()
        assert second.attached
    finally:
        get_plugins().unregister("listener")
    assert polled[0] == "SUBMITTED"
    assert polled.count("SUCCEEDED") == 1 == len(events)
    assert events[0].handle == second.handle


def test_killed_during_a_submit_under_an_id_with_a_namespace(
    control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that the submit brings about is cancelled, by its full id."""
    scheduler = runner.scheduler("scripted")

    def qualified(app_id: str, cfg: Any) -> str:
        return app_id if ":" in app_id else f"prod:{app_id}"

    monkeypatch.setattr(scheduler, "qualified_id", qualified, raising=False)
    app = scripted_app("a", {"steps": [{"state": "RUNNING", "until": "go"}], "submit_seconds": 1.0})
    launch = Launch(app=app, scheduler="scripted")
    one = execution(runner, launch=launch)
    timer = threading.Timer(0.3, one.kill, (True,))
    timer.start()
    try:
        with pytest.raises(AppCancelled):
            one.run()
    finally:
        timer.join()
        control.open("go")
    (app_id,) = control.started()
    assert [each["app_id"] for each in control.calls("cancel")] == [app_id]
    assert one.handle == f"scripted://host/{app_id}"


def test_a_poll_of_a_lost_job_does_not_wait(control: ScriptedControl, runner: Runner) -> None:
    """A job that is gone has no lines that are worth a wait."""
    one = execution(runner, {"steps": [{"state": "RUNNING", "until": "go"}]})
    one.start()
    control.vanish(control.started()[0])
    began = time.monotonic()
    with pytest.raises(AppLost):
        one.look()
    assert time.monotonic() - began < 5
