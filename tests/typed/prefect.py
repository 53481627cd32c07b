"""What a flow author's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload.runner import AppResults
from transload.specs import AppDef
from transload_prefect import app_task, may_retry, run_app, run_app_async, search_flow
from transload_search import Objective, Parameter, Search


def component(value: int = 1) -> AppDef:
    """Return nothing of interest."""
    raise NotImplementedError


def by_task() -> None:
    """Check the task."""
    train = app_task(component, name="train", retries=2, patience=60.0, tags=["training"])
    train.with_options(timeout_seconds=60, retry_condition_fn=may_retry)
    app_task(component, retires=2)  # type: ignore[call-arg]
    app_task(command=["true"], retries="2")  # type: ignore[arg-type]


async def in_a_flow() -> None:
    """Check what runs where the code stands."""
    assert_type(run_app(component, component_args={"value": 2}, gpu=1), AppResults)
    assert_type(await run_app_async(command=["true"], key="first"), AppResults)
    run_app(component, retries=2)  # type: ignore[call-arg]


def by_search() -> None:
    """Check the flow of a search."""
    search = Search(component, [Parameter("value", "int", 0, 9)], Objective("loss"))
    search_flow(search, retries=1).with_options(name="other")
    search_flow(search, patiense=1)  # type: ignore[call-arg]
