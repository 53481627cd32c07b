"""Prefect's part in the conformance suite: what a task run does around one app, in a child
process.
"""

from __future__ import annotations

from transload.errors import TransloadError
from transload.pipelines import Execution, ExecutionOptions, Identity, Launch, host_runner
from transload_prefect.run import HOST, ReturnedState, run_app
from transload_testing.adapter_driver import ChildJob
from transload_testing.stores import JsonFileStore


def run(child: ChildJob) -> None:
    """Run one app as a task run would, and report how it ended."""
    job = child.job
    # a new flow run is a new namespace, with labels of its own
    flow_run = f"{job.namespace}/{job.generation}"
    store = f"{child.store}.{job.generation}"

    options = ExecutionOptions(**job.options)
    execution = Execution(
        host_runner(HOST),
        Launch(**child.launch),
        Identity(HOST, flow_run, (f"{job.name}#0", job.name)),
        options,
        store=JsonFileStore(store),
        log_store=JsonFileStore(f"{store}.logs"),
        sink=lambda role, replica, stream, line: child.log(f"{role}/{replica} {line}"),
        log=child.log,
        asked=child.asked,
    )
    child.on_kill(execution.kill)
    try:
        outcome = run_app(execution)
    except TransloadError as exc:
        child.finish("FAILED", error=exc, retryable=options.host_may_retry(exc))
    else:
        if isinstance(outcome, ReturnedState):
            child.finish(outcome.type, error=outcome.message, retryable=None)
        else:
            child.finish("COMPLETED", results=outcome.to_dict())
