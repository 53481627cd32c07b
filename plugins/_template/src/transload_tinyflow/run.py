"""Running an app inside a step: the policy is core's, here it only meets Tinyflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from transload.errors import TransloadError
from transload.pipelines import Ending, Execution, ExecutionOptions, Identity, Launch, host_runner
from transload_tinyflow.states import ENDINGS

if TYPE_CHECKING:
    from tinyflow import Context

    from transload.runner import AppResults

HOST: Final = "tinyflow"
"""Session name of all handles."""


def identity_of(context: Context) -> Identity:
    """Return whose app it is: equal for every try of a step, another one once a person runs it
    again.
    """
    return Identity(HOST, context.flow_run, (context.step,), str(context.round))


def execution_of(
    context: Context,
    launch: Launch,
    options: ExecutionOptions,
    *,
    inherit_env: bool = False,
    **more: Any,
) -> Execution:
    """Return the execution of a step's app; ``more``: arguments of ``Execution``."""
    runner = host_runner(HOST, inherit_env=inherit_env)
    return Execution(runner, launch, identity_of(context), options, **traces_of(context), **more)


def traces_of(context: Context) -> dict[str, Any]:
    """Return where a step leaves what it knows of its app, and who is asked at its end: arguments
    of ``Execution``.
    """
    return {
        "store": context.notes,
        "log_store": context.log_notes,
        "sink": lambda role, replica, stream, line: context.log(f"{role}/{replica} {line}"),
        "log": context.log,
        "asked": context.stop_was_asked_for,
    }


def run_app(execution: Execution, context: Context) -> AppResults:
    """Submit the app or attach to it, wait for its end, return what it reported; errors as
    `ending_of` says.
    """
    with translate_errors(execution.options), cancel_on_exit(execution, context):
        return execution.run()


@contextmanager
def cancel_on_exit(execution: Execution, context: Context) -> Iterator[None]:
    """End the app if somebody asked for that, and else leave it, when Tinyflow stops the step."""
    context.on_stop(execution.kill)
    yield


@contextmanager
def translate_errors(options: ExecutionOptions) -> Iterator[None]:
    """Turn errors into those that Tinyflow acts on."""
    try:
        yield
    except TransloadError as exc:
        raise ending_of(exc, options) from exc


def ending_of(error: TransloadError, options: ExecutionOptions) -> Exception:
    """Return the exception with which Tinyflow is told of an error: stopped, or broken and perhaps
    tried again.
    """
    import tinyflow

    if ENDINGS[Ending.of(error)] == "Stopped":
        return tinyflow.Stopped(str(error))
    return tinyflow.Broken(str(error), again=options.host_may_retry(error))
