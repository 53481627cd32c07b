"""Crashes and restarts of a real Airflow: one job, and its results arrive."""

from __future__ import annotations

import os
import signal

import pytest
from airflow_server import AirflowServer, Run
from scripts import Stage, held, kill_task

pytestmark = pytest.mark.timeout(280)


def test_killed_task_attaches_again(stage: Stage) -> None:
    """Kill -9 of the task's process: the retry attaches to the same app, and delivers its
    results.
    """
    run = stage.run("sync_retry", held(results={"0": {"x": 1}}, lines=[{"text": "said once"}]))
    kill_task(stage, run)
    stage.server.until(
        lambda: run.task()["try_number"] == 2 and "attached to" in run.log(), "the retry attaches"
    )
    stage.go(run)
    run.wait("success")
    assert run.xcom()["results"] == {"0": {"x": 1}}
    assert len(stage.started(run)) == 1


STRIKES = {
    "task, SIGTERM": (signal.SIGTERM, "task"),
    "supervisor, SIGTERM": (signal.SIGTERM, "supervisor"),
    "both, SIGKILL": (signal.SIGKILL, "supervisor", "task"),
    "supervisor, SIGKILL": (signal.SIGKILL, "supervisor"),
}
"""Signal, and which processes of a task that waits in place get it."""


@pytest.mark.slow  # Airflow takes a minute to miss a supervisor
@pytest.mark.timeout(600)
def test_ends_that_nobody_asked_for(stage: Stage) -> None:
    """Whichever of a task's processes is stopped or killed, its app goes on, and the retry attaches
    to it.
    """
    runs = {name: stage.run("sync_retry", held(results={"0": {"x": 1}})) for name in STRIKES}
    for name, (number, *which) in STRIKES.items():
        app_id = stage.app_id(runs[name])
        stage.handle(runs[name])
        stage.watched(app_id)
        task = stage.control.calls("submit", app_id)[0]["pid"]
        pids = {"task": task, "supervisor": parent_of(task)}
        for each in which:
            os.kill(pids[each], number)
    for name, run in runs.items():
        stage.server.until(
            lambda run=run: run.task()["try_number"] == 2 and "attached to" in run.log(),
            f"the retry: {name}",
            300,
        )
        assert not stage.cancelled(stage.app_id(run)), name
        stage.go(run)
        run.wait("success")
        assert run.xcom()["results"] == {"0": {"x": 1}}
        assert len(stage.started(run)) == 1, name


@pytest.mark.slow  # the conformance suite dies at each of these points
def test_killed_between_submit_and_store(stage: Stage) -> None:
    """The process dies before it learns that the app was taken: the retry finds it."""
    runs = [
        stage.run(f"{mode}_retry", held(crash="after", results={"0": {"x": 1}}))
        for mode in ("sync", "deferrable")
    ]
    for run in runs:
        stage.go(run)
        run.wait("success")
        assert run.task()["try_number"] == 2
        assert run.xcom()["results"] == {"0": {"x": 1}}
        assert len(stage.started(run)) == 1


def test_triggerer_restarts(airflow: AirflowServer, stage: Stage) -> None:
    """A triggerer that is killed leaves the app alone; the next one takes over, and no line comes
    twice.
    """
    run = stage.run(
        "deferrable_plain", held(lines=[{"text": "before the restart"}], results={"0": {"x": 1}})
    )
    run.wait("deferred")
    app_id = stage.app_id(run)
    airflow.until(lambda: "before the restart" in run.log(), "a line while it is deferred")
    for number in (signal.SIGTERM, signal.SIGKILL):
        airflow.end_part("triggerer", number)
        assert not stage.cancelled(app_id)
        airflow.start_part("triggerer")
        count = run.log().count("starting")
        airflow.until(
            lambda count=count: run.log().count("starting") > count, "another triggerer has it", 150
        )
        stage.watched(app_id)
    stage.go(run)
    run.wait("success")
    assert not stage.cancelled(app_id)
    assert run.xcom()["results"] == {"0": {"x": 1}}
    assert run.log().count("before the restart") == 1
    assert len(stage.started(run)) == 1


def test_unreachable_scheduler_is_no_failed_app(stage: Stage) -> None:
    """A scheduler that cannot answer for longer than patience: up_for_retry, then the same app is
    attached to.
    """
    gap = [
        {"state": "RUNNING", "seconds": 0.5},
        {"state": "UNAVAILABLE", "until": "back"},
        "SUCCEEDED",
    ]
    runs = [stage.run(f"{mode}_retry_patience", {"steps": gap}) for mode in ("sync", "deferrable")]
    short = stage.run(
        "deferrable_plain", {"steps": [gap[0], {"state": "UNAVAILABLE", "seconds": 2}, "SUCCEEDED"]}
    )

    def again(run: Run) -> bool:
        if run.task()["try_number"] < 2:
            return False
        stage.control.open(
            "back", stage.app_id(run)
        )  # at once: the retry has no more patience than the first try
        return True

    stage.server.until(
        lambda: sum(map(again, runs)) == len(runs), "patience is exhausted, and a retry begins"
    )
    for run in runs:
        run.wait("success")
        assert run.task()["try_number"] == 2
        assert "is unknown for" in run.log(attempt=1)
        assert not stage.cancelled(stage.app_id(run))
        assert len(stage.started(run)) == 1
    short.wait("success")
    assert short.task()["try_number"] == 1


def test_not_durable(stage: Stage) -> None:
    """durable=False: a killed task's retry knows nothing of the first app, and starts another
    one.
    """
    run = stage.run("sync_not_durable", held())
    kill_task(stage, run)
    stage.app_id(run, 2)
    stage.control.open("go")
    try:
        run.wait("success")
    finally:
        stage.control.folder.unmark("go")


def test_broken_trigger_is_no_second_app(stage: Stage) -> None:
    """A trigger that fails hands the task back to a worker, which waits for the same app; without a
    store as well.
    """
    runs = [
        stage.run(f"broken_{word}", held(results={"0": {"x": 1}}))
        for word in ("durable", "not_durable")
    ]
    for run in runs:
        stage.server.until(
            lambda run=run: "in place" in run.log(), "the task is back, and waits in place"
        )
        stage.go(run)
        run.wait("success")
        assert run.xcom()["results"] == {"0": {"x": 1}}
        assert run.task()["try_number"] == 1
        assert len(stage.started(run)) == 1


def parent_of(pid: int) -> int:
    """Return the process that started another one."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_sigterm_leaves_the_app_to_the_retry(stage: Stage) -> None:
    """A worker that is stopped (an eviction) leaves the app, though on_kill="cancel": the retry
    attaches to it.
    """
    run = stage.run("sync_retry", held(results={"0": {"x": 1}}))
    app_id = stage.app_id(run)
    stage.handle(run)
    os.kill(parent_of(stage.control.calls("submit", app_id)[0]["pid"]), signal.SIGTERM)
    stage.server.until(
        lambda: run.task()["try_number"] == 2 and "attached to" in run.log(), "the retry attaches"
    )
    assert not stage.cancelled(app_id)
    stage.go(run)
    run.wait("success")
    assert run.xcom()["results"] == {"0": {"x": 1}}
    assert stage.started(run) == [app_id]


def test_sigterm_detaches_and_the_retry_attaches(stage: Stage) -> None:
    """With on_kill="detach" a worker that is asked to end leaves the app; the retry attaches to
    it.
    """
    run = stage.run("sync_detach_retry", held(results={"0": {"x": 1}}))
    app_id = stage.app_id(run)
    stage.handle(run)
    os.kill(stage.control.calls("submit", app_id)[0]["pid"], signal.SIGTERM)
    stage.server.until(
        lambda: run.task()["try_number"] == 2 and "attached to" in run.log(), "the retry attaches"
    )
    assert not stage.cancelled(app_id)
    stage.go(run)
    run.wait("success")
    assert run.xcom()["results"] == {"0": {"x": 1}}
    assert stage.started(run) == [app_id]
