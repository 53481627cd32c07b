"""`AppTaskRunner` runs many jobs at once without a thread each, which may wait for others."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import job


def test_map_without_a_thread_for_each(host: Any, gate: Path, eventually: Any) -> None:
    """With AppTaskRunner twenty waiting apps hold no thread each."""
    from prefect import flow

    from transload.pipelines import host_runner
    from transload_prefect import AppTaskRunner, app_task

    task = app_task(job, component_args={"gate": str(gate)}, artifacts=False)

    @flow(task_runner=AppTaskRunner())
    def work() -> Any:
        before = threading.active_count()
        futures = task.map(value=list(range(20)))
        runner = host_runner("prefect")
        eventually(lambda: len(runner.list("local")) == 20, 60)
        during = threading.active_count()
        gate.touch()
        return during - before, futures.result()

    more, results = work()
    assert [each.value("value") for each in results] == list(map(float, range(20)))
    assert more < 20


def test_apps_that_are_over_leave_no_execution(host: Any, eventually: Any) -> None:
    """A process that runs flows for days does not keep what it used to look after their apps."""
    from prefect import flow

    from transload.pipelines import Step
    from transload_prefect import AppTaskRunner, app_task

    def executions() -> set[int]:
        gc.collect()
        return {id(each) for each in gc.get_objects() if isinstance(each, Step)}

    task, before = app_task(job), executions()

    @flow(task_runner=AppTaskRunner())
    def work() -> Any:
        return [each.value("value") for each in task.map(value=[1, 2]).result()]

    assert work() == [1, 2]
    eventually(lambda: executions() <= before, 30)


def test_results_of_submitted_apps_are_arguments_of_others(
    host: Any, script: Callable[[str], Any]
) -> None:
    """With AppTaskRunner, apps wait for apps and ordinary tasks, and these for apps, without
    holding each other up.
    """
    body = """
from jobs import job
from prefect import flow, task as ordinary
from transload_prefect import AppTaskRunner, app_task

task = app_task(job)

@ordinary
def double(results):
    return 2 * results.value("value")

@ordinary
def value_of(results):
    return results.value("value")

@flow(task_runner=AppTaskRunner())
def work():
    first = task.submit(value=1)
    second = task.submit(value=double.submit(first), launch={"parent_run_id": first})
    third = task.submit(value=value_of.submit(second), wait_for=[first, second])
    several = task.map(value=[double.submit(third), value_of.submit(first)])
    return [each.result().value("value") for each in (first, second, third, *several)]

print("VALUES", work())
"""
    process = (made := script(body)).start()
    process.wait(timeout=110)
    assert "VALUES [1.0, 2.0, 2.0, 4.0, 1.0]" in made.log.read_text(), made.log.read_text()[-3000:]


@pytest.mark.slow
def test_a_hundred_at_once(host: Any, gate: Path, eventually: Any) -> None:
    """A hundred apps run at once in one flow, with threads and memory that do not grow with their
    number.
    """
    from prefect import flow

    from transload.pipelines import host_runner
    from transload_prefect import AppTaskRunner, app_task

    task = app_task(job, component_args={"gate": str(gate)}, name="hundred")

    def resident() -> float:
        return (
            int(Path("/proc/self/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / 2**20
        )

    @flow(task_runner=AppTaskRunner())
    def work() -> Any:
        threads, memory = threading.active_count(), resident()
        futures = task.map(value=list(range(100)))
        runner = host_runner("prefect")
        eventually(
            lambda: [each.state.name for each in runner.list("local")] == ["RUNNING"] * 100, 300
        )
        more = threading.active_count() - threads, resident() - memory
        gate.touch()
        return more, futures.result()

    (threads, memory), results = work()
    assert sorted(each.value("value") for each in results) == list(map(float, range(100)))
    assert threads < 20
    assert memory < 100
