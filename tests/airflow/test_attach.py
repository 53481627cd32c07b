"""A real Airflow crashes and restarts, with one job whose results arrive."""

from __future__ import annotations

import os
import signal

import pytest
from airflow_server import AirflowServer, Run
from scripts import Stage, held, kill_task


@pytest.mark.usefixtures("alone")
def test_triggerer_restarts(airflow: AirflowServer, stage: Stage) -> None:
    """A triggerer that is stopped or killed leaves the job alone, and the next one takes over.

    The lines since the deferral come again. The job of a task that is marked just as it defers is ended meanwhile.
    """
    lines = [{"text": "before the restart"}]
    run = stage.run("deferrable_plain", held(lines=lines, results={"0": {"x": 1}}))
    run.wait("deferred")
    app_id = stage.app_id(run)
    airflow.until(lambda: "before the restart" in run.log(), "a line while it is deferred")
    starts = run.log().count("starting")
    airflow.end_part("triggerer", signal.SIGTERM)
    assert not stage.cancelled(app_id)
    airflow.start_part("triggerer")
    taken_over(stage, run, starts)
    starts = run.log().count("starting")
    airflow.end_part("triggerer", signal.SIGKILL)
    try:
        mark_as_it_defers(stage)
    finally:
        airflow.start_part("triggerer")
    taken_over(stage, run, starts)
    stage.go(run)
    run.wait("success")
    assert not stage.cancelled(app_id)
    assert run.xcom()["results"] == {"0": {"x": 1}}
    assert 1 <= run.log().count("before the restart") <= 3
    assert len(stage.started(run)) == 1


def taken_over(stage: Stage, run: Run, starts: int) -> None:
    """Wait until a trigger is started after so many others, and watches the job."""
    stage.server.until(lambda: run.log().count("starting") > starts, "another triggerer has it")
    stage.watched(stage.app_id(run))


def mark_as_it_defers(stage: Stage) -> None:
    """Mark a task in the moment in which it defers: no trigger ever runs for it."""
    run = stage.run("marked", held())
    stage.server.until(
        lambda: stage.cancelled(stage.app_id(run)), "the job that could not defer is ended"
    )
    assert run.wait("failed")


@pytest.mark.slow  # test_task_that_airflow_forgot has the rule
def test_a_scheduler_begins_the_task_again(airflow: AirflowServer, stage: Stage) -> None:
    """A scheduler takes a running task for that of a dead one, and has it begun again.

    That is no request to end the job. It goes on, and the other try reattaches.
    """
    run = stage.run("begun_again", held(results={"0": {"x": 1}}))
    stage.handle(run)
    app_id = stage.app_id(run)
    stage.watched(app_id)
    airflow.pause("begun_again")  # it has no state until it is begun, as if it had been cleared
    try:
        run.abandon()
        airflow.until(lambda: run.state() is None, "the scheduler has let the task go")
        airflow.until(lambda: "Task killed" in run.log(attempt=1), "the first try has ended")
        assert not stage.cancelled(app_id)
    finally:
        airflow.pause("begun_again", False)
    airflow.until(lambda: "attached to" in run.log(), "the other try reattaches")
    assert not stage.cancelled(app_id)
    stage.go(run)
    run.wait("success")
    assert run.xcom()["results"] == {"0": {"x": 1}}
    assert stage.started(run) == [app_id]


def parent_of(pid: int) -> int:
    """Return the process that started another one."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_retry_after_a_kill(stage: Stage) -> None:
    """A task that is killed, or a worker that is stopped, leaves the job. The retry reattaches to
    it and delivers its results.
    """
    lines = [{"text": "said once"}]
    killed = stage.run("sync_retry", held(results={"0": {"x": 1}}, lines=lines))
    stopped = stage.run("sync_retry", held(results={"0": {"x": 1}}))
    detached = stage.run("sync_detach_retry", held(results={"0": {"x": 1}}))
    kill_task(stage, killed)
    stage.handle(stopped)
    os.kill(parent_of(task_process(stage, stopped)), signal.SIGTERM)
    stage.handle(detached)
    os.kill(task_process(stage, detached), signal.SIGTERM)
    for run in (killed, stopped, detached):
        stage.server.until(
            lambda run=run: run.task()["try_number"] == 2 and "attached to" in run.log(),
            "the retry reattaches",
        )
        assert not stage.cancelled(stage.app_id(run))
        stage.go(run)
        run.wait("success")
        assert run.xcom()["results"] == {"0": {"x": 1}}
        assert len(stage.started(run)) == 1


def task_process(stage: Stage, run: Run) -> int:
    """Return the process of a task that waits in place."""
    pid: int = stage.control.calls("submit", stage.app_id(run))[0]["pid"]
    return pid
