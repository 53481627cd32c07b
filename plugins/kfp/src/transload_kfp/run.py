"""Running an app inside a task of Kubeflow Pipelines: the policy is core's, here it only meets the
host.

Imports no KFP: the image of a launcher need not have it.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from transload.errors import TransloadError
from transload.pipelines import Detached, Ending, Execution, Identity, host_runner, inside_job
from transload.runner import Cluster
from transload.runtime.tracking import TrackingError
from transload_kfp import sigterm
from transload_kfp.inline import last_word, say
from transload_kfp.states import ENDINGS, EXIT_NO_RESULT

if TYPE_CHECKING:
    from transload.pipelines import LogSink
    from transload.runner import AppResults, Runner
    from transload.schedulers.api import Stream
    from transload_kfp.launch_spec import LaunchSpec

HOST: Final = "kfp"
"""Session name of all handles."""


# -- whose app it is


def identity_of(context: Mapping[str, str], title: str, arguments: Mapping[str, Any]) -> Identity:
    """Return whose app it is: equal for every try of a task, another one in another run.

    Args:
        context: what Kubeflow Pipelines says of the task: ``job_id``, ``job_name``, ``task_name``;
            ``path``, which tells it from others of its pipeline; ``key``, the user's, which tells
            it from others of its loop.
        title: the app's name, where the task has none.
        arguments: input → value.
    """
    canonical = json.dumps(dict(arguments), sort_keys=True, default=str)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    key = (
        context.get("path", ""),
        context.get("key", ""),
        digest,
        context.get("task_name") or title,
    )
    return Identity(HOST, f"{context.get('job_id', '')}/{context.get('job_name', '')}", key)


# -- its execution


def execution_of(
    context: Mapping[str, str],
    spec: LaunchSpec,
    arguments: Mapping[str, Any],
    sink: LogSink | None = None,
) -> Execution:
    """Return the execution of a task's app.

    Args:
        context: see `identity_of`; ``parent`` is the handle of the app that this one derives from.
        spec: what the component carries.
        arguments: input → value.
        sink: gets the log lines; default: standard output.

    Raises:
        SpecError: for a wrong argument.
    """
    launch = spec.launch_with(arguments)
    if context.get("parent"):
        launch = replace(launch, parent_run_id=context["parent"])
    # a try after the first: KFP has seen the failure of the one before
    options = replace(
        spec.execution_options(),
        loss_already_reported=os.environ.get("KFP_RETRY_INDEX", "0") not in ("", "0"),
    )
    runner = runner_of(spec.cluster, inherit_env=spec.inherit_env)
    identity = identity_of(context, launch.name, arguments)
    return Execution(
        runner, launch, identity, options, sink=sink or log_line, log=say, asked=taken_for_a_request
    )


def taken_for_a_request() -> bool:
    """Tell whether SIGTERM is taken for somebody's wish: KFP cannot say who sent it, but a job
    around the task can.
    """
    return not inside_job()


def runner_of(cluster: Mapping[str, Any] | None, *, inherit_env: bool) -> Runner:
    """Return the runner of this process; it knows the cluster that a component carries, if it
    does.
    """
    return host_runner(
        HOST, inherit_env=inherit_env, clusters=[Cluster.from_dict(cluster)] if cluster else []
    )


def log_line(role: str, replica: int, stream: Stream, line: str) -> None:
    """Put a line of a replica into the log of the task."""
    print(f"{role}/{replica} {line.rstrip()}", flush=True)  # noqa: T201


# -- its life in the task


def run_app(execution: Execution) -> AppResults:
    """Submit the app or attach to it, wait for its end, return what it reported.

    Raises:
        TaskFailed: with the exit code, once the reason was said.
    """
    with translate_errors(), cancel_on_exit(execution):
        return execution.run()


@contextmanager
def cancel_on_exit(execution: Execution) -> Iterator[Callable[[], bool]]:
    """End the app, or leave it, as ``on_kill`` says, when SIGTERM ends the task; gives what tells
    whether it has.
    """
    seen: list[int] = []

    def kill(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        cancels = execution.options.on_kill == "cancel" and taken_for_a_request()
        say(f"SIGTERM: {'cancelling' if cancels else 'detaching from'} the app")
        execution.kill()

    before: Any = None
    with suppress(ValueError):  # not in the main thread: whoever runs us there keeps its own way
        before = signal.signal(signal.SIGTERM, kill)
    if sigterm.noted:
        kill(signal.SIGTERM, None)
    try:
        yield lambda: bool(seen)
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


class TaskFailed(SystemExit):
    """Ends the task's process with an exit code; what happened has been said."""


@contextmanager
def translate_errors(ended_well: bool = False) -> Iterator[None]:
    """Turn errors into the end of the task's process; ``ended_well``: of the app, so that its
    results are to blame.

    Raises:
        TaskFailed: with the exit code.
    """
    try:
        yield
    except TransloadError as exc:
        raise ending_of(exc, ended_well) from exc


def ending_of(error: TransloadError, ended_well: bool = False) -> TaskFailed:
    """Return how a task ends for an error, and say why: in its log, and as the last word of its
    pod.
    """
    code, text = ENDINGS[Ending.of(error)], str(error)
    if ended_well or isinstance(error, TrackingError):
        code, text = EXIT_NO_RESULT, f"the app ended well, but {error}"
    elif isinstance(error, Detached) and error.handle is None:
        text = "stopped before the app was submitted or found again; on_kill holds for one that is there"
    last_word(text)
    return TaskFailed(code)
