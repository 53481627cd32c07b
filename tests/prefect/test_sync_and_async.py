"""Jobs run in sync and async flows and tasks, as Prefect's own tasks do."""

from __future__ import annotations

import asyncio
from typing import Any

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


def test_all_kinds_of_code(host: Any) -> None:
    """In an async flow, jobs are awaited at once, in its own code and in tasks; sync tasks work."""
    from prefect import flow, task

    from transload_prefect import app_task, run_app, run_app_async

    awaited = app_task(job, asynchronous=True)
    blocking = app_task(job)

    @task
    def ordinary(value: float) -> Any:
        return run_app(job, component_args={"value": value})

    @task
    async def coroutine(value: float) -> Any:
        return await run_app_async(job, component_args={"value": value})

    @flow
    def inner() -> Any:
        return blocking(value=1)

    @flow
    async def work() -> Any:
        own = [run_app_async(job, component_args={"value": value}) for value in (2, 3)]
        several = await asyncio.gather(*own, awaited(value=4), coroutine(5))
        mapped = await asyncio.to_thread(awaited.map(value=[6, 7]).result)
        found = [inner(), *several, *mapped, blocking(value=8), ordinary(9)]
        return [each.value("value") for each in found]

    assert asyncio.run(work()) == [float(value) for value in range(1, 10)]
