"""Hooks of an app task are Prefect's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jobs import job


def _transacted(task: Any) -> None:
    """Run a task in an async flow once well, and once so that it is rolled back."""
    from prefect import flow
    from prefect.transactions import transaction

    @flow
    async def work() -> None:
        await task()
        with pytest.raises(RuntimeError), transaction():
            await task()
            raise RuntimeError("roll back")

    asyncio.run(work())


def test_hooks_of_an_awaited_task(host: Any) -> None:
    """All kinds of hooks run where a task is awaited, also those added after the first call."""
    from transload_prefect import app_task

    train = app_task(job, asynchronous=True)
    called: list[str] = []
    train.on_rollback(lambda txn: called.append("rollback"))
    train.on_commit(lambda txn: called.append("commit"))
    _transacted(train)
    assert called == ["commit", "rollback"]
    train.on_completion(lambda task, run, state: called.append("completion"))
    train.on_running(lambda task, run, state: called.append("running"))
    train.on_failure(lambda task, run, state: called.append("failure"))
    with pytest.raises(Exception, match="exit code 3"):
        asyncio.run(_failed(train))
    assert called[2:] == ["running", "failure"]
    _transacted(train)
    assert called[4:] == ["running", "commit", "completion", "running", "completion", "rollback"]


async def _failed(task: Any) -> None:
    from prefect import flow

    @flow
    async def work() -> None:
        await task(code=3)

    await work()
