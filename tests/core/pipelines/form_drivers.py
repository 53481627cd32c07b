"""A host of no kind: the shared policy alone, in the forms that hosts use. Run in child processes
by the suite.
"""

from __future__ import annotations

import asyncio
import json

from transload import pipelines
from transload.errors import TransloadError
from transload.pipelines import (
    AppCancelled,
    Execution,
    ExecutionOptions,
    Identity,
    Launch,
    host_runner,
)
from transload.runner import AppResults, Runner
from transload.specs import AppState
from transload_testing.adapter_driver import ChildJob
from transload_testing.stores import JsonFileStore


def _execution(child: ChildJob) -> Execution:
    job = child.job
    execution = Execution(
        host_runner("form"),
        Launch(**child.launch),
        Identity("form", job.namespace, (job.name,), job.generation),
        ExecutionOptions(**job.options),
        store=JsonFileStore(child.store),
        log_store=JsonFileStore(f"{child.store}.logs"),
        sink=lambda role, replica, stream, line: child.log(line),
        asked=child.asked,
    )
    child.on_kill(execution.kill)
    return execution


def _report(child: ChildJob, execution: Execution, results: AppResults | TransloadError) -> None:
    if isinstance(results, AppResults):
        child.finish(AppState.SUCCEEDED, results=results.to_dict())
        return
    state = AppState.CANCELLED if isinstance(results, AppCancelled) else AppState.FAILED
    child.finish(state, error=results, retryable=execution.options.host_may_retry(results))


def run_async(child: ChildJob) -> None:
    """All in one event loop."""
    execution = _execution(child)
    try:
        results: AppResults | TransloadError = asyncio.run(execution.run_async())
    except TransloadError as exc:
        results = exc
    _report(child, execution, results)


def deferred(child: ChildJob) -> None:
    """Started by one execution, waited for by another with a runner of its own, settled by the
    first.
    """
    execution = _execution(child)
    try:
        execution.start()
        state = json.loads(json.dumps(execution.state()))
        with Runner("form") as elsewhere:
            waiter = Execution.from_state(
                state,
                elsewhere,
                sink=lambda role, replica, stream, line: child.log(line),
                log_store=JsonFileStore(f"{child.store}.logs"),
                asked=child.asked,
            )
            child.on_kill(waiter.kill)
            outcome = json.loads(json.dumps(asyncio.run(pipelines.outcome(waiter))))
        results: AppResults | TransloadError = pipelines.settle(execution, outcome)
    except TransloadError as exc:
        results = exc
    _report(child, execution, results)
