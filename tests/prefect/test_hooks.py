"""Hooks, and all else that is set on an app task, live on in its copies."""

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

    train = app_task(job)
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


def test_hooks_and_attributes_after_with_options(host: Any) -> None:
    """A copy has all hooks of its original, and what was set on it, but shares none of them."""
    from transload_prefect import app_task

    given: list[Any] = []
    train = app_task(job, retries=1, on_completion=given)
    called: list[str] = []
    train.on_rollback(lambda txn: called.append("rollback"))
    train.on_commit(lambda txn: called.append("commit"))
    train.on_completion(lambda task, run, state: called.append("completion"))
    train.retries = 4
    train.tags.add("late")
    train.timeout_seconds = 300.0
    train.owner = "somebody"
    trial = train.of_trial(
        0, "trial", namespace="search", context_args={}, meanwhile=train.spec.meanwhile
    )
    copies = [train.with_options(description="a copy"), train.aio, trial]
    for each in copies:
        assert (each.retries, each.tags, each.timeout_seconds, each.owner) == (
            4,
            {"late"},
            300.0,
            "somebody",
        )
    copies[0].on_completion(lambda task, run, state: called.append("only the copy's"))
    assert (len(train.on_completion_hooks), len(copies[0].on_completion_hooks), given) == (1, 2, [])
    _transacted(copies[0].with_options(name="other"))
    assert called == ["commit", *["completion", "only the copy's"] * 2, "rollback"]


def test_hooks_given_with_options(host: Any) -> None:
    """Hooks that ``with_options`` gives replace those of their kind. The others stay."""
    from transload_prefect import app_task

    called: list[str] = []
    train = app_task(
        job,
        on_rollback=[lambda txn: called.append("old")],
        on_commit=[lambda txn: called.append("kept")],
    )
    _transacted(train.with_options(on_rollback=[lambda txn: called.append("new")]))
    assert called == ["kept", "new"]
