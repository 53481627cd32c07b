"""Drive the base class of adapters alone, in the forms that orchestrators use.

Run in child processes by the suite.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from transload.errors import TransloadError
from transload.pipelines import (
    AdapterIO,
    Again,
    AppCancelled,
    Driver,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    LifecycleAdapter,
    StateMap,
    host_runner,
    outcome,
)
from transload.runner import AppResults
from transload.specs import AppState
from transload_testing.adapter_driver import ChildJob
from transload_testing.stores import JsonFileStore


class FormAdapter(LifecycleAdapter[ChildJob]):
    """An adapter whose steps are child processes of the suite."""

    name = "form"
    states = StateMap("Form", {state: state.name for state in AppState})
    endings: ClassVar[Mapping[Ending, str]] = {ending: ending.value for ending in Ending}

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return the source."""
        return source

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return nothing."""
        return ""

    def identity(self, context: ChildJob) -> Identity:
        """Return what the suite calls the step."""
        job = context.job
        return Identity(self.name, (job.namespace,), (job.name,))

    def asked(self, context: ChildJob) -> dict[str, Any]:
        """Return what tells this try from others. Its process is kept, and not compared."""
        job = context.job
        return {"round": int(job.generation), "began": job.began, "process": os.getpid()}

    def asked_anew(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Compare the rounds, and when the run began."""
        if now["round"] != kept["round"]:
            return Again.YES if now["round"] > kept["round"] else Again.LATER
        return Again.NO if now["began"] == kept["began"] else Again.FOREIGN

    def io(self, context: ChildJob) -> AdapterIO:
        """Return stores in files, and the suite's log."""
        return AdapterIO(
            runner=host_runner(self.name),
            store=JsonFileStore(context.store),
            log_store=JsonFileStore(f"{context.store}.logs"),
            sink=lambda role, replica, stream, line: context.log(line),
            log=context.log,
            asked=context.asked,
        )

    @contextmanager
    def cancel_on_exit(self, context: ChildJob, driver: Driver) -> Iterator[None]:
        """Pass the suite's kill on."""
        context.on_kill(driver.kill)
        yield

    def translate(self, error: TransloadError, context: ChildJob) -> BaseException:
        """Return an error with the state that the step comes to."""
        state = AppState.FAILED
        if isinstance(error, AppCancelled):
            state = AppState.CANCELLED
        retryable = _options(context).host_may_retry(error)
        return StepFailed(state, error, retryable)


class Waiter(FormAdapter):
    """The same in a process that may neither submit nor store."""

    def io(self, context: ChildJob) -> AdapterIO:
        """Return only what hands on log lines."""
        io = super().io(context)
        io.store = None
        return io


class StepFailed(Exception):
    """What a step ends with in this orchestrator."""

    def __init__(self, state: AppState, error: TransloadError, retryable: bool) -> None:
        super().__init__(str(error))
        self.state = state
        self.error = error
        self.retryable = retryable


ADAPTER = FormAdapter()
WAITER = Waiter()


def _options(child: ChildJob) -> ExecutionOptions:
    return ExecutionOptions(**child.job.options)


@contextmanager
def _reporting(child: ChildJob) -> Iterator[list[AppResults]]:
    """Report to the suite how the step has ended."""
    results: list[AppResults] = []
    try:
        yield results
    except StepFailed as exc:
        child.finish(exc.state, error=exc.error, retryable=exc.retryable)
    else:
        child.finish(AppState.SUCCEEDED, results=results[0].to_dict())


def run_async(child: ChildJob) -> None:
    """All in one event loop."""
    with _reporting(child) as results:
        work = ADAPTER.run_async(child, Launch(**child.launch), _options(child))
        results.append(asyncio.run(work))


def deferred(child: ChildJob) -> None:
    """Started by one driver, waited for by another that knows only its state, resumed by a third."""
    with _reporting(child) as results:
        driver = ADAPTER.start(child, Launch(**child.launch), _options(child))
        state = json.loads(json.dumps(driver.state()))
        elsewhere = WAITER.restore(child, state)
        with WAITER.guard(child, elsewhere):
            waited = json.loads(json.dumps(asyncio.run(outcome(elsewhere))))
        back = ADAPTER.restore(child, waited["state"])
        results.append(ADAPTER.resume(child, back, waited))
