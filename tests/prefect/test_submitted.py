"""Jobs that a flow submits may wait for others, and leave nothing in its process."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from jobs import job


def test_apps_that_are_over_leave_no_execution(host: Any, eventually: Any) -> None:
    """A process that runs flows for days does not keep what it used to look after their apps."""
    from prefect import flow

    from transload.pipelines import Step
    from transload_prefect import app_task

    def executions() -> set[int]:
        gc.collect()
        return {id(each) for each in gc.get_objects() if isinstance(each, Step)}

    task, before = app_task(job), executions()

    @flow
    def work() -> Any:
        return [each.value("value") for each in task.map(value=[1, 2]).result()]

    assert work() == [1, 2]
    eventually(lambda: executions() <= before, 30)


def test_results_of_submitted_apps_are_arguments_of_others(
    host: Any, script: Callable[[str], Any]
) -> None:
    """With apps wait for apps and ordinary tasks, and these for apps, without
    holding each other up.
    """
    body = """
from jobs import job
from prefect import flow, task as ordinary
from transload_prefect import app_task

task = app_task(job)

@ordinary
def double(results):
    return 2 * results.value("value")

@ordinary
def value_of(results):
    return results.value("value")

@flow
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
