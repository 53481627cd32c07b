"""Running an app inside a step: the policy is core's, here it only meets the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.errors import TransloadError
from transload.pipelines import AppCancelled, Execution, ExecutionOptions, Identity, Launch, host_runner

if TYPE_CHECKING:
    from tinyflow import Context

    from transload.runner import AppResults


def run_app(launch: Launch, options: ExecutionOptions, context: Context, retries: int, inherit_env: bool) -> AppResults:
    """Run an app as the work of a step.

    Raises:
        Stopped: if the app was cancelled.
        Broken: if it failed, was lost, could not be submitted, or its state is unknown for too long.
    """
    from tinyflow import Broken, Stopped

    execution = Execution(
        host_runner("tinyflow", inherit_env=inherit_env),
        launch,
        Identity("tinyflow", context.flow_run, (context.step,), str(context.round)),
        options,
        store=context.notes,
        log_store=context.log_notes,
        sink=lambda role, replica, stream, line: context.log(f"{role}/{replica} {line}"),
        log=context.log,
        host_retries=retries,
    )
    context.on_stop(execution.kill)
    try:
        return execution.run()
    except AppCancelled as exc:
        raise Stopped(str(exc)) from exc
    except TransloadError as exc:
        raise Broken(str(exc), again=options.rule.host_may_retry(exc)) from exc
