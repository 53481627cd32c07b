"""Test what an orchestrator calls. Crashes are in the conformance suite."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transload import pipelines
from transload.errors import (
    AppFailed,
    ConfigError,
    SpecError,
    StateUnknown,
    SubmitError,
    TransloadError,
    TransloadTimeout,
)
from transload.pipelines import (
    AdapterIO,
    AppCancelled,
    AppLost,
    Detached,
    Driver,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    LifecycleState,
    app_id_of,
    dry_run,
    host_runner,
    where,
)
from transload.pipelines.chain import Action
from transload.pipelines.errors import HandedBack
from transload.plugins import AppEvent, get_plugins, hookimpl
from transload.runner import Runner
from transload.runtime.tracking import app_folder
from transload.specs import AppDef, AppState, AppStatus, Role
from transload_testing.drivers import driver_of, restored_driver
from transload_testing.scripted import ScriptedControl, scripted_app
from transload_testing.scripted.scheduler import ENV_REACH, ScriptedScheduler, create_scheduler
from transload_testing.stores import MemoryStore

WHO = Identity("host", ("here",), ("flow", "step"))
HELD = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"], "results": {"0": {"x": 1}}}


def execution(
    runner: Runner,
    script: dict[str, Any] | None = None,
    who: Identity = WHO,
    *,
    name: str = "a",
    **more: Any,
) -> Driver:
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
    return driver_of(runner, launch, who, ExecutionOptions(**options), **more)


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
    done = execution(runner, {"steps": steps}, log=said.append)
    done.start()
    while polls and not done.poll().final:
        time.sleep(0.02)
    done.resume()
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

    done = execution(runner, {"steps": steps}, log=log)
    done.run()
    told = [
        line.removeprefix(f"{done.handle} ")
        for line in said
        if "is PENDING" in line or "node1" in line
    ]
    assert told == ["is PENDING: Priority", "is PENDING: Resources: no GPU"]


def test_follow_for_a_while(control: ScriptedControl, runner: Runner) -> None:
    """An orchestrator that may wait elsewhere first waits here, without losing an unended job.

    An ended one is collected.
    """
    lines: list[str] = []
    steps = [{"state": "RUNNING", "lines": ["hello"], "until": "go"}, "SUCCEEDED"]
    looking = execution(
        runner,
        {"steps": steps, "results": {"0": {"x": 1}}},
        sink=lambda *line: lines.append(line[-1]),
    )
    looking.start()
    assert not looking.follow_for(0)
    assert not looking.follow_for(0.3)
    assert looking.status is not None and looking.status.state is AppState.RUNNING
    control.open("go")
    assert looking.follow_for(60)
    assert looking.follow_for(0), "it has ended, and this is known"
    assert looking.collect().value("x") == 1
    assert lines == ["hello\n"]


async def test_run_async(control: ScriptedControl, runner: Runner) -> None:
    """Many at once, one thread, the same results."""
    runs = [
        execution(
            runner, HELD, Identity("host", ("here",), (str(n),)), sink=lambda *_: None
        ).run_async()
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
    from transload.pipelines import lifecycle

    now, asked = [100.0], list[float]()

    def cancel(self: Runner, handle: str) -> bool:
        asked.append(now[0])
        raise SchedulerUnavailable("away")

    made = execution(runner, HELD)
    made.start()
    clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    monkeypatch.setattr(lifecycle, "time", clock)
    monkeypatch.setattr(Runner, "cancel", cancel)
    made.kill(asked=True)
    for _ in range(4 * 100):
        made.poll()
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
            sink=lambda *_, seen=seen: loop.call_soon_threadsafe(seen.set),
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


def test_intended_id_before_submit_handle_before_poll(
    control: ScriptedControl, runner: Runner
) -> None:
    """The store holds the intended id when the submit begins, and the handle when the first
    question is asked.
    """
    calls: list[tuple[int, int, dict[str, Any]]] = []

    class Store(MemoryStore):
        def put(self, record: dict[str, Any]) -> None:
            calls.append((len(control.calls("submit")), len(control.calls("describe")), record))
            super().put(record)

    execution(runner, {"results": {}}, store=Store()).run()
    (submits, _, before), (_, polls, after) = calls
    assert (submits, before["handle"]) == (0, None)
    assert before["app_id"] == app_id_of(WHO, 0)
    assert polls == 0
    assert after["handle"] == f"scripted://host/{app_id_of(WHO, 0)}"
    assert after["attempt"] == 0


def test_deferred_and_gone_after_the_end(control: ScriptedControl, runner: Runner) -> None:
    """Who sees the end reads the results, so they are there though the job is gone since."""
    first = execution(runner, {"results": {"0": {"x": 1}}})
    first.start()
    waiting = restored_driver(first.state(), runner)
    outcome = json.loads(json.dumps(asyncio.run(pipelines.outcome(waiting))))
    control.vanish(control.started()[0])
    assert pipelines.finish(first, outcome).value("x") == 1


def test_deferred_and_gone_with_large_results(control: ScriptedControl, runner: Runner) -> None:
    """What is too large for an event is read by the process that comes back, or said to be gone."""
    many = {str(key): {"text": "x" * 1000} for key in range(100)}
    first = execution(runner, {"results": many})
    first.start()
    outcome = asyncio.run(pipelines.outcome(restored_driver(first.state(), runner)))
    assert len(json.dumps(outcome)) < 20_000
    assert pipelines.finish(first, outcome).results == many
    control.vanish(control.started()[0])
    with pytest.raises(AppLost):
        pipelines.finish(first, outcome)


@pytest.mark.parametrize(
    ("script", "kind", "error"),
    [
        ({"steps": ["FAILED"], "exit_code": 3}, "ended", AppFailed),
        ({"steps": ["RUNNING", "CANCELLED"]}, "ended", AppCancelled),
        ({"steps": ["UNKNOWN"]}, "unknown", StateUnknown),
        ({"steps": [{"state": "RUNNING", "seconds": 0.2}, "GONE"]}, "lost", AppLost),
        ({"steps": ["PENDING"]}, "timeout", TransloadTimeout),
    ],
)
def test_deferred_failures(
    control: ScriptedControl,
    runner: Runner,
    script: dict[str, Any],
    kind: str,
    error: type[Exception],
) -> None:
    """Every way to fail crosses processes and is raised where the host can act on it."""
    store = MemoryStore()
    first = execution(runner, script, patience=0.2, startup_timeout=0.3, store=store)
    first.start()
    state = first.state()
    outcome = asyncio.run(pipelines.outcome(restored_driver(state, runner)))
    assert outcome["kind"] == kind
    with pytest.raises(error) as raised:
        pipelines.finish(first, json.loads(json.dumps(outcome)))
    assert str(raised.value).count(str(first.handle)) == 1, "what happened is said once"
    assert store.record is not None
    assert store.record["lost"] is (kind == "lost")


class Forbidden:
    """A store that the waiting process may not touch, where it would hang."""

    def get(self) -> dict[str, Any] | None:
        """Fail."""
        raise AssertionError("the store was read")

    def put(self, record: dict[str, Any]) -> None:
        """Fail."""
        raise AssertionError("the store was written")


@pytest.mark.parametrize("ends", ["GONE", "SUCCEEDED"])
def test_a_process_that_may_not_save_hands_the_state_back(
    control: ScriptedControl, runner: Runner, ends: str
) -> None:
    """It waits without the store. What must be kept of a lost job, the first process keeps."""
    store = MemoryStore()
    first = execution(runner, {"steps": [{"state": "RUNNING", "seconds": 0.2}, ends]}, store=store)
    first.start()
    taken = LifecycleState.from_dict(first.state())
    io = AdapterIO(runner=runner, store=Forbidden(), may_save=False)
    waited = asyncio.run(pipelines.outcome(Driver(None, taken, io)))
    assert store.record is not None
    assert store.record["lost"] is False
    if ends == "SUCCEEDED":
        assert pipelines.finish(first, waited).state is AppState.SUCCEEDED
        return
    assert waited["kind"] == "lost"
    with pytest.raises(AppLost):
        pipelines.finish(first, waited)
    assert store.record["lost"] is True


def test_a_process_that_may_not_save_submits_nothing(
    control: ScriptedControl, runner: Runner
) -> None:
    """Its driver stops before the submit."""
    launch = Launch(app=scripted_app("a"), scheduler="scripted")
    io = AdapterIO(runner=runner, may_save=False)
    state = LifecycleState(WHO, ExecutionOptions())
    with pytest.raises(HandedBack):
        Driver(launch, state, io).start()
    assert control.started() == []


def test_a_waiter_that_is_elsewhere_says_so(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the app cannot be seen, the waiter ends at once, and the submitter waits in place with
    one warning.
    """
    monkeypatch.setenv("TRANSLOAD_SCRIPTED_REACH", "host")
    with Runner("host") as runner:
        said: list[str] = []
        first = execution(runner, HELD, log=said.append)
        first.start()
        state = {**first.state(), "place": "another/machine"}
        outcome = asyncio.run(pipelines.outcome(restored_driver(state, runner)))
        assert outcome["kind"] == "elsewhere"
        control.open("go")
        assert pipelines.finish(first, outcome).value("x") == 1
        assert sum("in place" in line for line in said) == 1


def test_poll(control: ScriptedControl, runner: Runner) -> None:
    """A host that asks now and then sees states, logs and patience, and nothing is raised."""
    lines: list[str] = []
    steps = [
        {"state": "RUNNING", "lines": ["one"], "until": "a"},
        {"state": "UNKNOWN", "until": "b"},
        {"state": "SUCCEEDED", "lines": ["two"]},
    ]
    one = execution(
        runner, {"steps": steps}, patience=0.05, sink=lambda *each: lines.append(each[3])
    )
    one.start()
    assert one.poll().status.state is AppState.RUNNING  # type: ignore[union-attr]
    assert lines == ["one\n"]
    control.open("a")
    assert not one.poll().exhausted
    time.sleep(0.06)
    assert one.poll().exhausted
    control.open("b")
    seen = one.poll(runner.status_many([one.handle or ""])[one.handle or ""], asked=True)
    assert seen.final
    assert lines == ["one\n", "two\n"]
    assert one.collect().state is AppState.SUCCEEDED
    control.vanish(app_id_of(WHO, 0))
    assert one.poll().status is None


class Stop(BaseException):
    """What a host's signal handler raises."""


def test_exception_of_a_signal_cancels(control: ScriptedControl, runner: Runner) -> None:
    """What is no ordinary error is a kill, as somebody wished."""

    def stop(handle: str, status: AppStatus) -> None:
        raise Stop

    with pytest.raises(Stop):
        execution(runner, HELD, on_change=stop, asked=lambda: True).run()
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
    one._carry_out_now(one._lifecycle.start(one._moment()))
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


@pytest.mark.parametrize("handle_stored", [True, False])
def test_an_app_is_looked_for_where_it_was_submitted(
    control: ScriptedControl, second: ScriptedControl, both: Runner, handle_stored: bool
) -> None:
    """A host whose scheduler was changed between two runs attaches to the app on the old one, and
    starts no second.
    """
    store = MemoryStore()
    execution(both, HELD, store=store).start()
    if not handle_stored:  # killed between the submit and the store
        store.put({**(store.get() or {}), "handle": None})
    elsewhere = Launch(app=scripted_app("a", HELD), scheduler="second")
    said: list[str] = []
    again = execution(both, launch=elsewhere, store=store, log=said.append)
    assert again.start().action is Action.ATTACH
    assert again.handle == f"scripted://host/{app_id_of(WHO, 0)}"
    assert any("another place" in line for line in said)
    control.open("go")
    assert again.collect(again.follow()).value("x") == 1
    assert (len(control.started()), second.started()) == (1, [])
    assert execution(both, launch=elsewhere, store=store).start().action is Action.COLLECT


@pytest.mark.parametrize("script", [{"steps": ["FAILED"]}, {"submit_error": "permanent"}])
def test_the_next_attempt_goes_where_the_host_says_now(
    control: ScriptedControl, second: ScriptedControl, both: Runner, script: dict[str, Any]
) -> None:
    """What failed on the old scheduler, or never came to be there, is answered on the new one."""
    store = MemoryStore()
    with pytest.raises((AppFailed, SubmitError)):
        execution(both, script, store=store).run()
    elsewhere = Launch(app=scripted_app("a", {}), scheduler="second")
    assert execution(both, launch=elsewhere, store=store).run().state is AppState.SUCCEEDED
    assert len(second.started()) == 1
    assert store.record is not None
    assert store.record["handle"] == f"second://host/{second.started()[0]}"


def test_a_loss_on_the_old_scheduler_is_reported_once(
    control: ScriptedControl, second: ScriptedControl, both: Runner
) -> None:
    """A stored job that is gone is lost wherever it was. The retry starts at the present place."""
    store = MemoryStore()
    execution(both, HELD, store=store).start()
    control.vanish(app_id_of(WHO, 0))
    elsewhere = Launch(app=scripted_app("a", {}), scheduler="second")
    with pytest.raises(AppLost, match="scripted://"):
        execution(both, launch=elsewhere, store=store).run()
    assert execution(both, launch=elsewhere, store=store).run().state is AppState.SUCCEEDED
    assert second.started() == [app_id_of(WHO, 1)]


def test_a_changed_definition_is_attached_to_and_said(
    control: ScriptedControl, runner: Runner
) -> None:
    """Ids decide, and a digest that differs is logged."""
    said: list[str] = []
    execution(runner, HELD).start()
    execution(runner, {**HELD, "exit_code": 4}, log=said.append).start()
    assert any("another definition" in line for line in said)
    said.clear()
    execution(runner, HELD, log=said.append).start()
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
        runner, launch=Launch(app=app, scheduler="scripted"), log=said.append, host_retries=3
    ).run()
    assert sum("12 starts" in line for line in said) == 1


def test_wrong_things_start_nothing(control: ScriptedControl, runner: Runner) -> None:
    """An unknown scheduler, an unknown option, a bad spec, a refused submit."""
    store = MemoryStore()
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
            execution(runner, launch=launch, store=store).run()
        assert "\n" not in str(caught.value)
    assert control.started() == []


def test_dry_run(control: ScriptedControl, runner: Runner) -> None:
    """A dry run gives the text of what would be submitted, and nothing is stored or started."""
    store = MemoryStore()
    assert '"app"' in execution(runner, HELD, store=store).dry_run()
    assert store.record is None
    assert control.calls("submit") == []


def test_an_app_that_is_known_by_its_handle(control: ScriptedControl, runner: Runner) -> None:
    """A job known by its handle is followed and collected, and its log goes on where it was."""
    lines: list[str] = []
    kept = MemoryStore()
    steps = [
        {"state": "RUNNING", "lines": ["one"], "until": "go"},
        {"state": "SUCCEEDED", "lines": ["two"]},
    ]
    first = execution(
        runner, {"steps": steps}, sink=lambda *each: lines.append(each[3]), log_store=kept
    )
    handle = first.start().handle
    first.poll()
    control.open("go")
    other = driver_of(
        runner, None, WHO, first.options, sink=lambda *each: lines.append(each[3]), log_store=kept
    )
    other.attach(handle)
    assert other.collect(other.follow()).handle == handle
    assert lines == ["one\n", "two\n"]
    assert len(control.started()) == 1


def test_a_poll_that_finds_the_app_gone_says_so_to_the_store(
    control: ScriptedControl, runner: Runner
) -> None:
    """The next run answers with the next attempt, as after `follow`."""
    store = MemoryStore()
    one = execution(runner, {"steps": [{"state": "RUNNING", "seconds": 0.1}, "GONE"]}, store=store)
    one.start()
    deadline = time.monotonic() + 10
    while one.poll().status is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert store.record is not None
    assert store.record["lost"] is True
    assert execution(runner, {}, store=store).start().attempt == 1


def test_link(control: ScriptedControl, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's page goes before the scheduler's. What is no full address is no page."""
    from transload.plugins import get_plugins
    from transload.runner import Job

    pages: list[str | None] = ["/a/folder", None]
    one = execution(runner, {})
    one.start()
    described = runner.job(one.handle or "").description()
    assert described is not None
    described.status.ui_url = "https://engine.example/app"
    monkeypatch.setattr(Job, "description", lambda self: described)
    monkeypatch.setattr(get_plugins(), "app_link", lambda handle: pages[0])
    assert one.link() == "https://engine.example/app"
    pages[0] = "http://reports.example/app"
    assert one.link() == "http://reports.example/app"
    described.status.ui_url = pages[0] = None
    object.__setattr__(described, "log_url", "https://engine.example/logs")
    assert one.link() == "https://engine.example/logs"
    object.__setattr__(described, "log_url", "/a/folder")
    assert one.link() is None


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


def test_states_of_other_things_are_refused(control: ScriptedControl, runner: Runner) -> None:
    """Nonsense and newer schemas are refused, and so is collecting too early."""
    with pytest.raises(SpecError):
        restored_driver({}, runner)
    one = execution(runner, HELD)
    with pytest.raises(ConfigError, match="start"):
        one.follow()
    one.start()
    with pytest.raises(ConfigError, match="has not ended"):
        one.collect()
    with pytest.raises(SpecError, match="newer"):
        restored_driver({**one.state(), "schema": 99}, runner)
    outcome = {"kind": "error", "message": "boom", "state": one.state()}
    with pytest.raises(TransloadError, match="boom"):
        pipelines.finish(one, outcome)


def test_shared_runner_of_a_host(control: ScriptedControl) -> None:
    """Units of work of one host share a runner, whose jobs do not inherit the environment."""
    assert host_runner("h") is host_runner("h")
    assert host_runner("h") is not host_runner("h", inherit_env=True)
    assert host_runner("h").name() == "h"


@pytest.mark.parametrize(
    ("reach", "anywhere", "here"),
    [("process", False, False), ("host", False, True), ("network", True, True)],
)
def test_where_an_app_can_be_waited_for(
    control: ScriptedControl,
    runner: Runner,
    monkeypatch: pytest.MonkeyPatch,
    reach: Any,
    anywhere: bool,
    here: bool,
) -> None:
    """By its reach a job can be waited for nowhere else, on the same machine, or anywhere."""
    scheduler = runner.scheduler("scripted")
    monkeypatch.setattr(scheduler, "reach", reach)
    one = execution(runner, HELD)
    one.attach("scripted://host/a")
    assert one.can_defer(same_machine=False) is anywhere
    assert one.can_defer(same_machine=True) is here


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
        while not first.poll().final and time.monotonic() < deadline:
            time.sleep(0.01)
        polled, events[:] = [event.state.name for event in events], []
        second = execution(runner)
        assert second.start().action is Action.COLLECT
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
    one = execution(runner, {"steps": [{"state": "RUNNING", "until": "go"}]}, sink=lambda *_: None)
    one.start()
    assert one.handle is not None
    control.vanish(one.handle.rpartition("/")[2])
    began = time.monotonic()
    assert one.poll().status is None
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("reach", ["host", "network"])
@pytest.mark.parametrize("place", ["another machine", where()])
def test_a_try_on_another_machine_than_the_one_before(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, reach: str, place: str
) -> None:
    """A scheduler of one machine shows no jobs of another one, where the submit may have worked.

    So the loss is said once, before another job is submitted. A process that died before its submit
    on this machine, or on a scheduler that is seen from everywhere, has left none.
    """
    monkeypatch.setenv(ENV_REACH, reach)
    store = MemoryStore()
    with Runner("host") as runner:
        with monkeypatch.context() as patch:
            patch.setattr(ScriptedScheduler, "submit", _dies)
            with pytest.raises(SystemExit):
                execution(runner, store=store).start()
        assert store.record is not None
        store.record["place"] = place
        first = execution(runner, store=store)
        if (reach, place) == ("host", "another machine"):
            with pytest.raises(AppLost, match="on another machine"):
                first.start()
            first = execution(runner, store=store)
        first.run()
    number = 1 if (reach, place) == ("host", "another machine") else 0
    assert control.started() == [app_id_of(WHO, number)]


def _dies(*_: Any) -> bool:
    raise SystemExit(1)
