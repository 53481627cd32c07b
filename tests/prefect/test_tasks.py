"""Job tasks run on a real server, with all that Prefect shows and stores of them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jobs import job

from transload.errors import AppFailed
from transload.pipelines import host_runner
from transload.runner import AppResults
from transload.specs import AppDef, Role


def _flow_run_id() -> str:
    from prefect.runtime import flow_run

    return str(flow_run.id)


def _states(host: Any, flow_run_id: str) -> Counter[str]:
    return Counter(
        f"{run['state_type']}/{run['state_name']}" for run in host.task_runs(flow_run_id)
    )


def test_a_name_that_was_given_is_the_name_of_the_job(host: Any) -> None:
    """A job is called as its task is, where somebody has named that, and else as what it runs."""
    from prefect import flow

    from transload_prefect import app_task, run_app

    code = ["python3", "-m", "this"]

    @flow
    def work() -> list[str]:
        named = app_task(command=code, name="zen")
        found = [
            run_app(command=code),
            named(),
            named.with_options(name="zen of/python")(),
            app_task("utils.echo", name="hello")(),
            run_app("utils.echo", name="hello", overrides={"name": "mine"}),
            run_app(AppDef("echo", [Role("r", "", entrypoint="true")])),
            run_app(AppDef("echo", [Role("r", "", entrypoint="true")]), name="hi"),
        ]
        return [host_runner("prefect").job(each.handle).description().app.name for each in found]

    assert work() == ["this", "zen", "zen of-python", "hello", "mine", "echo", "hi"]


def test_who_asked_is_kept_with_the_job(host: Any) -> None:
    """A job leads to the flow run and the task run that it was submitted for."""
    from prefect import flow, task
    from prefect.runtime import flow_run

    from transload_prefect import app_task, run_app

    @task(name="true")
    def ordinary() -> str:
        return str(run_app(command=["true"]).handle)

    @flow(name="rates", flow_run_name="nightly")
    def work() -> list[Any]:
        runner = host_runner("prefect")
        handles = [app_task(command=["true"], name="train")().handle, ordinary()]
        handles.append(run_app(command=["true"]).handle)
        found = [runner.job(each).description().asked["prefect"] for each in handles]
        return [str(flow_run.id), *found]

    run_id, *jobs, of_flow = work()
    assert of_flow["flow_run"] == run_id and "task_run" not in of_flow
    assert of_flow["url"].endswith(f"/runs/flow-run/{run_id}")
    assert jobs[0]["task_run"] != jobs[1]["task_run"]
    for asked, name in zip(jobs, ("train", "true"), strict=True):
        assert asked["task_run"] and asked["task_run_name"].startswith(name)
        assert (asked["flow_run"], asked["flow_run_name"]) == (run_id, "nightly")
        assert asked["flow"] == "rates"
        assert asked["url"].endswith(f"/runs/task-run/{asked['task_run']}")


def test_results_and_states_and_logs(host: Any, eventually: Any) -> None:
    """A job's results are the task's value, and the flow run's log has its lines once, by level."""
    from prefect import flow

    from transload_prefect import app_task

    train = app_task(job, component_args={"lines": 3}, name="train", tags=["training"])

    @flow
    def work() -> Any:
        first = train(value=2)
        second = train(value=first.value("value") + 1, launch={"scheduler": "local"})
        return _flow_run_id(), first, second

    flow_run_id, first, second = work()
    assert isinstance(first, AppResults)
    assert (first.value("value"), second.value("value")) == (2.0, 3.0)
    eventually(lambda: _states(host, flow_run_id) == {"COMPLETED/Completed": 2}, 60)
    assert all("training" in run["tags"] for run in host.task_runs(flow_run_id))
    eventually(
        lambda: len([line for line in host.logs(flow_run_id) if "main/0" in line["message"]]) >= 10,
        60,
    )
    lines = [
        (line["message"], line["level"])
        for line in host.logs(flow_run_id)
        if "main/0" in line["message"]
    ]
    expected = [(f"main/0 line {n}.", 20) for n in range(4)] + [("main/0 to stderr", 20)]
    assert Counter(lines) == Counter(expected * 2)


def test_two_roles_of_three_replicas_are_one_task(host: Any, eventually: Any) -> None:
    """All replicas of all roles are in one task run, its artifacts and its results."""
    from prefect import flow

    from transload_prefect import app_task

    @flow
    def work() -> Any:
        return _flow_run_id(), app_task(
            job, component_args={"roles": 2, "replicas": 3, "value": 7}, name="Gang!"
        )()

    flow_run_id, results = work()
    assert results.results == {"main": {"value": 7.0}, "other": {"value": 7.0}}
    wanted = {"gang-replicas", "gang-results", "gang-logs"}
    eventually(lambda: {each["key"] for each in host.artifacts(flow_run_id)} >= wanted, 60)
    found = {each["key"]: each for each in host.artifacts(flow_run_id)}
    assert (
        set(found) - {"gang-progress"} == wanted
    )  # where six processes take long there is a bar of progress, too
    rows = json.loads(found["gang-replicas"]["data"])
    assert [(row["role"], row["replica"], row["state"], row["exit"]) for row in rows] == [
        (role, k, "SUCCEEDED", "exit code 0") for role in ("main", "other") for k in range(3)
    ]
    assert all(row["seconds"] >= 0 for row in rows)
    assert json.loads(found["gang-results"]["data"])[0] == {
        "key": "main",
        "name": "value",
        "value": 7.0,
    }
    assert f"transload log {results.handle}" in found["gang-logs"]["data"]
    assert len(eventually(lambda: host.task_runs(flow_run_id), 10)) == 1


def test_progress_is_shown_of_what_takes_longer(host: Any, eventually: Any, tmp_path: Path) -> None:
    """An app that goes on has a bar, which its end fills."""
    from prefect import flow

    from transload_prefect import app_task

    gate = tmp_path / "gate"

    def bars(flow_run_id: str) -> list[float]:
        return [
            each["data"] for each in host.artifacts(flow_run_id) if each["key"] == "slow-progress"
        ]

    @flow
    def work() -> str:
        flow_run_id = _flow_run_id()
        slow = app_task(job, component_args={"gate": str(gate)}, name="slow").submit()
        eventually(lambda: bars(flow_run_id) == [0.0], 60)
        gate.touch()
        slow.result()
        return flow_run_id

    flow_run_id = work()
    eventually(lambda: bars(flow_run_id) == [100.0], 60)


def test_files_of_an_app_are_shown(host: Any, eventually: Any) -> None:
    """What an app leaves in its output folder is a table among the artifacts of the flow run."""
    from prefect import flow

    from transload_prefect import run_app

    @flow
    def work() -> Any:
        run_app(command=["sh", "-c", "echo x > $TRANSLOAD_OUTPUT_DIR/model.bin"], name="train")
        return _flow_run_id()

    flow_run_id = work()
    found = eventually(
        lambda: [each for each in host.artifacts(flow_run_id) if each["key"] == "train-files"], 60
    )
    rows = json.loads(found[0]["data"])
    assert [row["name"] for row in rows] == ["model.bin"]
    assert Path(rows[0]["path"]).read_text() == "x\n"


def test_events_of_each_state(host: Any, gate: Path, eventually: Any) -> None:
    """Each change of state that is seen is an event, related to flow run and task run, also of one
    that runs.
    """
    from prefect import flow

    from transload.pipelines import host_runner
    from transload_prefect import app_task

    task = app_task(job, component_args={"gate": str(gate)})

    @flow
    def work() -> Any:
        future = task.submit()
        handle = eventually(
            lambda: [each.app_handle for each in host_runner("prefect").list("local")], 30
        )[0]
        eventually(lambda: "transload.app.running" in _events(host, handle), 60)
        gate.touch()
        return _flow_run_id(), future.result()

    flow_run_id, results = work()
    found = eventually(
        lambda: (all_of := _events(host, results.handle)).get("transload.app.succeeded") and all_of,
        60,
    )
    for event in (found["transload.app.running"], found["transload.app.succeeded"]):
        assert f"prefect.flow-run.{flow_run_id}" in {
            each["prefect.resource.id"] for each in event["related"]
        }
        assert {each["prefect.resource.role"] for each in event["related"]} >= {
            "flow-run",
            "task-run",
        }
        assert event["payload"]["handle"] == results.handle


def _events(host: Any, handle: str) -> dict[str, Any]:
    return {each["event"]: each for each in host.events(f"transload.app.{handle}")}


def test_failure_raises_after_retries(host: Any, eventually: Any) -> None:
    """A failed job is retried as new attempts, then raised with replica, exit code and lines."""
    from prefect import flow

    from transload_prefect import app_task

    bad = app_task(job, component_args={"code": 3}, name="bad", retries=2)

    @flow
    def work() -> Any:
        with pytest.raises(AppFailed, match=r"main/0 exit code 3(?s:.*)to stderr"):
            bad()
        return _flow_run_id()

    flow_run_id = work()
    eventually(lambda: _states(host, flow_run_id) == {"FAILED/Failed": 1}, 60)
    assert host.task_runs(flow_run_id)[0]["run_count"] == 3
    handles = [each for each in host.artifacts(flow_run_id) if each["key"] == "bad-replicas"]
    eventually(
        lambda: len([a for a in host.artifacts(flow_run_id) if a["key"] == "bad-replicas"]) == 3, 60
    )
    assert handles is not None
    from transload.pipelines import host_runner

    assert len(host_runner("prefect").list("local")) == 3


def test_bad_input_is_one_line_and_not_retried(host: Any, eventually: Any) -> None:
    """A wrong argument fails at once with one clear line, without a start or a retry."""
    from prefect import flow

    from transload_prefect import app_task

    task = app_task(job, retries=3, retry_delay_seconds=60)

    @flow
    def work() -> Any:
        return _flow_run_id(), task(replicas="many", return_state=True)

    flow_run_id, state = work()
    message = str(state.data if isinstance(state.data, Exception) else state.message)
    assert state.is_failed()
    assert "replicas" in message and "many" in message and "\n" not in message.strip()
    eventually(lambda: _states(host, flow_run_id) == {"FAILED/Failed": 1}, 60)
    assert host.task_runs(flow_run_id)[0]["run_count"] == 1


def test_what_a_call_may_launch(host: Any) -> None:
    """``launch=`` takes arguments of a Launch, but the call's go first.

    Anything else is an error.
    """
    from prefect import flow

    from transload_prefect import app_task

    task = app_task(job)

    @flow
    def work() -> Any:
        results = task(value=3, launch={"args": {"value": 2, "name": "other"}})
        return results, [
            task(launch=wrong, return_state=True) for wrong in ("slurm", {"shceduler": "local"})
        ]

    results, states = work()
    assert results.value("value") == 3.0
    for state, word in zip(states, ("slurm", "shceduler"), strict=True):
        message = str(state.result(raise_on_failure=False))
        assert message.startswith("launch=") and word in message and "\n" not in message


def test_a_component_with_an_argument_launch(host: Any) -> None:
    """The component's own argument of that name is what the call sets."""
    from prefect import flow

    from transload_prefect import app_task

    def starter(launch: float | None = None) -> AppDef:
        return job(value=launch or 1.0)

    task = app_task(starter, scheduler="local")

    @flow
    def work() -> Any:
        return task(launch=4).value("value")

    assert work() == 4.0


def test_cancelled_app_is_a_cancelled_task(host: Any, gate: Path, eventually: Any) -> None:
    """An app that somebody cancels gives the state AppCancelled, returned and not retried."""
    from prefect import flow

    from transload.pipelines import host_runner
    from transload_prefect import app_task

    task = app_task(job, component_args={"gate": str(gate)}, retries=3)

    @flow
    def work() -> Any:
        future = task.submit()
        runner = host_runner("prefect")
        handle = eventually(lambda: [each.app_handle for each in runner.list("local")], 60)[0]
        runner.cancel(handle)
        future.wait()
        return _flow_run_id(), future.state

    flow_run_id, state = work()
    assert (state.type.name, state.name) == ("CANCELLED", "AppCancelled")
    eventually(lambda: _states(host, flow_run_id) == {"CANCELLED/AppCancelled": 1}, 60)
    assert host.task_runs(flow_run_id)[0]["run_count"] == 1


def test_unknown_state_is_a_crashed_task(host: Any, tmp_path: Path, eventually: Any) -> None:
    """UNKNOWN for longer than patience gives the state AppCrashed."""
    from prefect import flow

    from transload_prefect import app_task
    from transload_testing.scripted import ScriptedControl, scripted_app

    control = ScriptedControl(tmp_path / "scripted")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in control.environment().items():
            patch.setenv(name, value)
        app = scripted_app("lost", {"steps": [{"state": "UNKNOWN"}]})

        @flow
        def work() -> Any:
            state = app_task(app, scheduler="scripted", patience=0.2, poll_interval=0.1)()
            return _flow_run_id(), (state.type.name, state.name)

        flow_run_id, state = work()
    assert state == ("CRASHED", "AppCrashed")
    eventually(lambda: _states(host, flow_run_id) == {"CRASHED/AppCrashed": 1}, 60)


def test_map_over_twenty_apps(host: Any, gate: Path, eventually: Any) -> None:
    """``map`` runs twenty jobs at once, all watched by one thread."""
    from prefect import flow, unmapped

    from transload.pipelines import host_runner
    from transload_prefect import app_task

    task = app_task(job, name="mapped")
    before = set(threading.enumerate())
    watching: list[str] = []

    def waited_for() -> bool:
        watching[:] = [
            each.name
            for each in set(threading.enumerate()) - before
            if each.name == "transload-states"
        ]
        return bool(watching) and len(host_runner("prefect").list("local")) == 20

    @flow
    def work() -> Any:
        futures = task.map(value=list(range(20)), lines=unmapped(1), gate=unmapped(str(gate)))
        eventually(waited_for, 60)
        gate.touch()
        return _flow_run_id(), futures.result()

    flow_run_id, results = work()
    assert [each.value("value") for each in results] == list(map(float, range(20)))
    assert len({each.handle for each in results}) == 20
    assert watching == ["transload-states"]
    eventually(lambda: _states(host, flow_run_id) == {"COMPLETED/Completed": 20}, 30)
    names = {" ".join(each["name"].split()[:2]) for each in host.task_runs(flow_run_id)}
    assert names == {f"mapped value={n}" for n in range(20)}, "their arguments tell them apart"


@pytest.mark.parametrize("on_kill", ["cancel", "detach"])
def test_a_time_limit_cancels_whatever_a_kill_does(
    host: Any, gate: Path, on_kill: str, eventually: Any
) -> None:
    """A passed time limit cancels the job, also where a kill would let it go on."""
    from prefect import flow

    from transload.pipelines import host_runner
    from transload_prefect import app_task

    task = app_task(job, component_args={"gate": str(gate)}, timeout_seconds=2, on_kill=on_kill)

    @flow
    def work() -> Any:
        future = task.submit()
        future.wait()
        return future.state.name

    assert work() == "TimedOut"
    runner = host_runner("prefect")
    eventually(lambda: [each.state.name for each in runner.list("local")] == ["CANCELLED"], 30)


def test_with_options(host: Any) -> None:
    """``with_options`` is Prefect's own: it changes the task, and the job stays as it was."""
    from prefect import flow

    from transload_prefect import app_task

    base = app_task(job, component_args={"value": 5}, retries=1, on_kill="detach", tags=["a"])
    changed = base.with_options(name="other", retries=4, tags=["b"])
    assert (changed.name, changed.retries, changed.tags) == ("other", 4, {"b"})
    assert base.retries == 1

    @flow
    def work() -> Any:
        return changed().value("value")

    assert work() == 5.0


def test_task_timeout_cancels(host: Any, gate: Path, eventually: Any) -> None:
    """A task's time limit ends the job when called, submitted to a thread, or awaited."""
    from prefect import flow

    from transload.pipelines import host_runner
    from transload_prefect import app_task

    task = app_task(job, component_args={"gate": str(gate)}, timeout_seconds=1)

    @flow
    def work() -> Any:
        called = task(return_state=True)
        submitted = task.submit(return_state=True)
        return _flow_run_id(), called.name, submitted.name

    awaited = app_task(
        job, component_args={"gate": str(gate)}, timeout_seconds=1, asynchronous=True
    )

    @flow
    async def work_async() -> Any:
        return (await awaited(return_state=True)).name

    flow_run_id, *names = work()
    assert [*names, asyncio.run(work_async())] == ["TimedOut"] * 3
    runner = host_runner("prefect")
    eventually(lambda: {each.state.name for each in runner.list("local")} == {"CANCELLED"}, 60)
    eventually(lambda: _states(host, flow_run_id) == {"FAILED/TimedOut": 2}, 60)


def test_app_inside_a_task(host: Any) -> None:
    """An app that an ordinary task starts has an identity of its own, also among equal tasks."""
    from prefect import flow, task

    from transload_prefect import run_app

    @task
    def outer(value: float) -> Any:
        return run_app(job, component_args={"value": value}).handle

    @flow
    def work() -> Any:
        return outer.map([1.0, 1.0, 2.0]).result()

    assert len(set(work())) == 3


def test_task_runs_are_named_by_their_arguments(host: Any, eventually: Any) -> None:
    """A task run's name has what its call and its task have set, shortened and masked."""
    from prefect import flow

    from transload_prefect import app_task

    def train(
        lr: float, epochs: int = 3, note: str = "", api_key: str = "", seed: int = 0
    ) -> AppDef:
        return AppDef("train", [Role("main", "", entrypoint="true")])

    @flow
    def work() -> str:
        task = app_task(train, component_args={"seed": 7})
        long = "a\nlong text that goes on and on"
        task(lr=0.1, note=long, api_key="hunter2", launch={"scheduler": "local"})
        task.with_options(name="other")(lr=0.2, epochs=3)
        return _flow_run_id()

    flow_run_id = work()
    names = {
        "train seed=7 lr=0.1 note=a long text that goes on… api_key=******",
        "other seed=7 lr=0.2",
    }
    eventually(lambda: {each["name"] for each in host.task_runs(flow_run_id)} == names, 60)


def test_a_time_limit_while_the_scheduler_is_away(
    host: Any, gate: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """The task has timed out, and its app is cancelled as soon as that can be done, although nobody
    waits for it.
    """
    from prefect import flow

    from transload.errors import SchedulerUnavailable
    from transload.pipelines import host_runner
    from transload.schedulers.local import LocalScheduler
    from transload_prefect import app_task

    cancel, away, refused = LocalScheduler.cancel, [True], []

    def unreachable(self: LocalScheduler, app_id: str) -> bool:
        if away:
            refused.append(app_id)
            raise SchedulerUnavailable("as in an outage")
        return cancel(self, app_id)

    monkeypatch.setattr(LocalScheduler, "cancel", unreachable)
    task = app_task(job, component_args={"gate": str(gate)}, timeout_seconds=2, on_kill="detach")

    @flow
    def work() -> Any:
        return task(return_state=True).name

    assert work() == "TimedOut"
    runner = host_runner("prefect")
    assert [each.state.name for each in runner.list("local")] == ["RUNNING"]
    assert refused
    away.clear()
    eventually(lambda: [each.state.name for each in runner.list("local")] == ["CANCELLED"], 30)


def test_a_time_limit_between_submit_and_handle(
    host: Any, gate: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """An app that was submitted a moment ago, and whose handle has not come back yet, is cancelled
    as well.
    """
    from prefect import flow

    from transload.pipelines import host_runner
    from transload.schedulers.local import LocalScheduler
    from transload_prefect import app_task

    submit = LocalScheduler.submit

    def answered_late(*arguments: Any) -> bool:
        started = submit(*arguments)
        time.sleep(6)  # the limit passes first
        return started

    task = app_task(job, component_args={"gate": str(gate)}, timeout_seconds=2, on_kill="detach")
    monkeypatch.setattr(LocalScheduler, "submit", answered_late)

    @flow
    def work() -> Any:
        return task(return_state=True).name

    assert work() == "TimedOut"
    runner = host_runner("prefect")
    eventually(lambda: [each.state.name for each in runner.list("local")] == ["CANCELLED"], 30)
