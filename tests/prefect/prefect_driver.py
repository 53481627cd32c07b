"""Do for the conformance suite what a task run does around one job, in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from transload.errors import TransloadError
from transload.pipelines import ExecutionOptions, Identity, Launch
from transload_prefect.runs import RunContext
from transload_prefect.states import HOST, ending_of
from transload_prefect.step import PrefectStep
from transload_testing.adapter_driver import ChildJob


class ChildNotes:
    """The suite's files, in place of an artifact's metadata."""

    generation = "0"
    link = None

    def __init__(self, store: Path) -> None:
        self._handle = store.with_name(f"{store.name}.handle")
        self._lost = store.with_name(f"{store.name}.lost")

    @property
    def handle(self) -> str | None:
        """Return the handle that was kept."""
        return self._handle.read_text() if self._handle.exists() else None

    @property
    def lost(self) -> bool:
        """Tell whether its loss was reported."""
        return self._lost.exists() and self._lost.read_text() == self.handle

    def submitted(self, handle: str) -> None:
        """Keep a handle."""
        self._handle.write_text(handle)

    def was_lost(self, handle: str) -> None:
        """Keep that a job is gone."""
        self._handle.write_text(handle)
        self._lost.write_text(handle)


class ChildTraces:
    """The suite's log, in place of Prefect's logs and artifacts."""

    def __init__(self, child: ChildJob) -> None:
        self.log = child.log
        self.notes = ChildNotes(Path(f"{child.store}.{child.job.generation}"))

    def sink(self, role: str, replica: int, stream: object, line: str) -> None:
        """Log a line of a replica."""
        self.log(f"{role}/{replica} {line}")

    def changed(self, handle: str, status: object) -> None:
        """Keep the handle."""
        self.notes.submitted(handle)

    show_progress = changed

    def collected(self, results: object, assets: object) -> None:
        """Show no results."""


class ChildStep(PrefectStep):
    """Prefect's step, in a flow run that the suite names."""

    child: ChildJob

    def identity(self) -> Identity:
        """Return whose job it is. A new flow run is a new namespace, with labels of its own."""
        job = self.child.job
        flow_run = f"{job.namespace}/{job.generation}"
        return Identity(HOST, (flow_run,), (f"{job.name}#0", job.name))

    def asked(self) -> bool | None:
        """Return what the suite says."""
        return self.child.asked()


def run(child: ChildJob) -> None:
    """Run one job as a task run would, and report how it ended."""
    job = child.job
    context = RunContext(job.name, f"{job.name}#0")
    options = ExecutionOptions(**job.options)
    traces = cast("Any", ChildTraces(child))
    step = ChildStep(context, Launch(**child.launch), options, traces=traces)
    step.child = child
    child.on_kill(step.kill)
    try:
        with step.watched():
            results = step.run()
    except TransloadError as exc:
        state = ending_of(exc)
        if state is None:
            child.finish("FAILED", error=exc, retryable=options.host_may_retry(exc))
        else:
            child.finish(state[0], error=str(exc), retryable=None)
    else:
        child.finish("COMPLETED", results=results.to_dict())
