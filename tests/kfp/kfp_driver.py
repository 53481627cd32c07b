"""Do for the conformance suite what a task does around one launcher, in a child process."""

from __future__ import annotations

from transload.errors import TransloadError
from transload.specs import AppState
from transload_testing.adapter_driver import ChildJob


def run(child: ChildJob) -> None:
    """Run one launcher as its task would, and report how it ended."""
    from transload_kfp import adapter
    from transload_kfp.adapter import launcher_driver, task_failed
    from transload_kfp.launch_spec import LaunchSpec
    from transload_kfp.run_watch import RunWatch
    from transload_kfp.states import EXIT_CANCELLED, EXIT_UNKNOWN, STATES

    class Run(RunWatch):
        """A run whose Workflow says what the suite has asked for."""

        def ended_by_now(self, seconds: float) -> bool:
            return child.asked()

    adapter.say = child.log
    adapter.RunWatch = Run
    job = child.job
    ends = {EXIT_CANCELLED: AppState.CANCELLED, EXIT_UNKNOWN: AppState.UNKNOWN}
    try:
        spec = LaunchSpec(child.launch, dict(job.options))
        # a person who runs it again makes a new run
        context = {"job_id": job.namespace, "job_name": job.generation, "task_name": job.name}
        _, driver = launcher_driver(
            context,
            LaunchSpec.decode(spec.encode()),
            {},
            sink=lambda role, k, stream, line: child.log(f"{role}/{k} {line}"),
        )
        child.on_kill(driver.kill)
        results = driver.run()
    except TransloadError as exc:
        state = ends.get(task_failed(exc).code, AppState.FAILED)
        again = LaunchSpec(child.launch, dict(job.options)).execution_options().host_may_retry(exc)
        child.finish(STATES[state], error=exc, retryable=again)
    else:
        child.finish(STATES[AppState.SUCCEEDED], results=results.to_dict())
