"""Do for the conformance suite what Tinyflow's engine does around a step, in a child process."""

from __future__ import annotations

from pathlib import Path

from transload.pipelines import Launch
from transload_testing.adapter_driver import ChildJob


def run(child: ChildJob) -> None:
    """Run one step as the engine would, and report how it ended."""
    import tinyflow

    from transload_tinyflow import step_from_app

    job = child.job
    failures = Path(f"{child.store}.failures")
    context = tinyflow.Context(
        flow_run=job.namespace,
        step=job.name,
        round=int(job.generation),
        began=job.began,
        failures=len(failures.read_text()) if failures.exists() else 0,
        log=child.log,
        on_stop=child.on_kill,
        stop_was_asked_for=child.asked,
    )
    step = step_from_app(Launch(**child.launch), **job.options)
    try:
        results = step.work(context)
    except tinyflow.Broken as exc:
        with failures.open("a") as file:
            file.write("x")
        child.finish(tinyflow.StepState.BROKEN, error=exc, retryable=exc.again)
    except tinyflow.Stopped as exc:
        child.finish(tinyflow.StepState.STOPPED, error=exc, retryable=False)
    else:
        child.finish(tinyflow.StepState.DONE, results=results.to_dict())
