"""Jobs run from sync flows in an event loop, and from loops in a sync flow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jobs import job


def test_a_sync_flow_called_from_async_code(host: Any) -> None:
    """A flow called from code in a loop, as in a notebook, runs its jobs synchronously."""
    from prefect import flow

    from transload_prefect import app_task, run_app

    train = app_task(job)

    @flow
    def work() -> Any:
        first = train(value=2)
        return first.value("value"), run_app(job, component_args={"value": 3}).value("value")

    async def notebook() -> Any:
        return work()

    assert asyncio.run(notebook()) == (2.0, 3.0)


def test_a_sync_subflow_and_a_sync_task_of_an_async_flow(host: Any) -> None:
    """A call inside a sync subflow or task is sync, though the flow around it awaits."""
    from prefect import flow, task

    from transload_prefect import app_task

    train = app_task(job)

    @flow
    def inner() -> Any:
        return train(value=4).value("value")

    @task
    def ordinary() -> Any:
        return train(value=5).value("value")

    @flow
    async def outer() -> Any:
        return inner(), ordinary(), (await train(value=6)).value("value")

    assert asyncio.run(outer()) == (4.0, 5.0, 6.0)


def test_coroutines_of_a_sync_flow_and_of_a_sync_task_await(host: Any) -> None:
    """In a loop of its own a sync flow or task awaits the same call."""
    from prefect import flow, task

    from transload_prefect import app_task

    train = app_task(job)

    async def several(*values: float) -> Any:
        return [
            each.value("value")
            for each in await asyncio.gather(*(train(value=value) for value in values))
        ]

    @task
    def ordinary() -> Any:
        return asyncio.run(several(3))

    @flow
    def work() -> Any:
        return asyncio.run(several(1, 2)) + ordinary()

    assert work() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_task_that_was_made_for_one_kind_of_code(host: Any, asynchronous: bool) -> None:
    """``asynchronous`` decides, wherever it is called."""
    import inspect

    from prefect import flow

    from transload_prefect import app_task

    train = app_task(job, asynchronous=asynchronous)

    @flow
    async def work() -> Any:
        called = train(value=7)
        return (await called if inspect.isawaitable(called) else called).value(
            "value"
        ), inspect.isawaitable(called)

    assert asyncio.run(work()) == (7.0, asynchronous)
