"""Do for the conformance suite what a task run does around one job, in a child process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from transload.errors import TransloadError
from transload.pipelines import AdapterIO, ExecutionOptions, Identity, Launch, host_runner
from transload_prefect.adapter import HOST, JobContext, PrefectAdapter, StateReturned
from transload_prefect.context import RunContext
from transload_testing.adapter_driver import ChildJob
from transload_testing.stores import JsonFileStore


@dataclass
class ChildAdapter(PrefectAdapter):
    """Prefect's adapter, with the suite's files in place of Prefect's API."""

    child: ChildJob

    def identity(self, context: JobContext) -> Identity:
        """Return whose job it is. A new flow run is a new namespace, with labels of its own."""
        job = self.child.job
        flow_run = f"{job.namespace}/{job.generation}"
        return Identity(HOST, (flow_run,), (f"{job.name}#0", job.name))

    def io(self, context: JobContext) -> AdapterIO:
        """Return the suite's stores and log, and what it asks."""
        child = self.child
        store = f"{child.store}.{child.job.generation}"
        return AdapterIO(
            runner=host_runner(HOST),
            store=JsonFileStore(store),
            log_store=JsonFileStore(f"{store}.logs"),
            sink=lambda role, replica, stream, line: child.log(f"{role}/{replica} {line}"),
            log=child.log,
            asked=child.asked,
        )


def run(child: ChildJob) -> None:
    """Run one job as a task run would, and report how it ended."""
    job = child.job
    adapter = ChildAdapter(child)
    run_context = RunContext(job.name, f"{job.name}#0", flow_run_id=None)
    context = JobContext(run_context, traces=cast("Any", None))
    options = ExecutionOptions(**job.options)
    driver = adapter.driver(context, Launch(**child.launch), options)
    child.on_kill(driver.kill)
    try:
        with adapter.guard(context, driver):
            results = driver.run()
    except StateReturned as exc:
        child.finish(exc.state.type, error=exc.state.message, retryable=None)
    except TransloadError as exc:
        child.finish("FAILED", error=exc, retryable=options.host_may_retry(exc))
    else:
        child.finish("COMPLETED", results=results.to_dict())
