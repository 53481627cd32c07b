"""What was rolled back, and what ``refresh_cache`` asked for, is done again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jobs import job


def _forgotten(drain: Any) -> None:
    """Have this process know nothing of its apps, as another process of the flow run."""
    from transload_prefect import notes

    drain()
    notes._notes_in.cache_clear()


def _twice(host: Any, drain: Any, body: Any, **settings: Any) -> list[Any]:
    """Return what the body returns in the first try of a flow, which then fails, and in its
    retry.
    """
    from prefect import flow

    seen: list[Any] = []

    @flow(retries=1, **settings)
    def work() -> Any:
        try:
            body(seen)
        finally:
            _forgotten(drain)

    work()
    return seen


def _fail_first(seen: list[Any]) -> None:
    if len(seen) == 1:
        raise RuntimeError("the first try")


def test_what_was_rolled_back_is_run_again(host: Any, drain: Any) -> None:
    """The flow's retry finds an app outside of the transaction, and runs the one that was rolled
    back again.
    """
    from prefect.transactions import transaction

    from transload_prefect import app_task

    kept, undone = (
        app_task(job, name="kept"),
        app_task(job, name="undone", component_args={"lines": 1}),
    )

    def body(seen: list[Any]) -> None:
        before = kept()
        with transaction():
            seen.append((before.handle, undone().handle))
            _fail_first(seen)

    first, second = _twice(host, drain, body)
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_a_job_of_the_flow_or_of_a_task_that_was_rolled_back(host: Any, drain: Any) -> None:
    """The same for what the flow's own code, or the code of a task, ran in a transaction."""
    from prefect import task
    from prefect.transactions import transaction

    from transload_prefect import run_app

    @task
    def outer() -> str:
        return str(run_app(job, name="inner").handle)

    def body(seen: list[Any]) -> None:
        with transaction():
            seen.append((run_app(job, name="own").handle, outer()))
            _fail_first(seen)

    first, second = _twice(host, drain, body)
    assert not set(first) & set(second)


def test_a_task_that_fails_keeps_what_its_apps_did(host: Any) -> None:
    """After an ordinary task's failure its retry collects, unless a hook undid something."""
    from prefect import flow, task

    from transload_prefect import app_task

    plain, hooked = app_task(job, name="plain"), app_task(job, name="hooked")
    hooked.on_rollback(lambda txn: None)
    seen: list[Any] = []

    @task(retries=1)
    def outer() -> None:
        seen.append((plain().handle, hooked().handle))
        _fail_first(seen)

    @flow
    def work() -> None:
        outer()

    work()
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] != seen[1][1]


@pytest.mark.parametrize("refresh", [True, False])
def test_refresh_cache(host: Any, drain: Any, refresh: bool) -> None:
    """A task with ``refresh_cache`` runs its job, or one it starts, in each try of the flow."""
    from prefect import task

    from transload_prefect import app_task, run_app

    fresh = app_task(job, name="fresh", refresh_cache=refresh)

    @task(refresh_cache=refresh)
    def outer() -> str:
        return str(run_app(job, name="inner").handle)

    def body(seen: list[Any]) -> None:
        seen.append((fresh().handle, outer()))
        _fail_first(seen)

    first, second = _twice(host, drain, body)
    assert [one != other for one, other in zip(first, second, strict=True)] == [refresh, refresh]


def test_the_retry_of_a_task_with_refresh_cache(host: Any) -> None:
    """What an ordinary task had done when it failed is collected by its own retry, whatever its
    cache.
    """
    from prefect import flow, task

    from transload_prefect import run_app

    seen: list[Any] = []

    @task(refresh_cache=True, retries=1)
    def outer() -> None:
        seen.append(run_app(job).handle)
        _fail_first(seen)

    @flow
    def work() -> None:
        outer()

    work()
    assert seen[0] == seen[1]


def test_refresh_cache_in_an_async_flow(host: Any, drain: Any) -> None:
    """The same for a task that is awaited."""
    from prefect import flow

    from transload_prefect import app_task

    fresh = app_task(job, refresh_cache=True, asynchronous=True)
    seen: list[Any] = []

    @flow(retries=1)
    async def work() -> None:
        seen.append((await fresh()).handle)
        _fail_first(seen)

    asyncio.run(work())
    assert seen[0] != seen[1]
