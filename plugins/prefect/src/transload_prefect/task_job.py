"""The function of a Prefect task that runs a job, and when Prefect may try it again."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.objects import State, StateType
from prefect.context import TaskRunContext
from prefect.logging import get_run_logger

from transload.errors import ConfigError
from transload_prefect.adapter import (
    PrefectStep,
    ReturnedState,
    StateReturned,
    on_cluster,
    within_time_limit,
)
from transload_prefect.again import note_done
from transload_prefect.arguments import (
    CALL,
    Call,
    asked_for,
    description_of,
    launch_of,
    named,
    signature_of,
)
from transload_prefect.cluster import cluster_named
from transload_prefect.context import RunContext
from transload_prefect.traces import Traces
from transload_prefect.units import unit_of_call

if TYPE_CHECKING:
    from transload.pipelines import ExecutionOptions
    from transload_prefect.settings import AppSpec


def retry_condition(
    options: ExecutionOptions, theirs: Callable[[Any, Any, State[Any]], Any] | None
) -> Callable[[Any, Any, State[Any]], Any]:
    """Return the condition that has Prefect retry only what a retry may help.

    Args:
        options: how the job is run.
        theirs: the user's condition, which must allow the retry too.
    """

    def may(state: State[Any]) -> bool:
        return not isinstance(state.data, BaseException) or options.host_may_retry(state.data)

    if theirs is None:
        return lambda task, task_run, state: may(state)

    if inspect.iscoroutinefunction(theirs):

        async def ask(task: Any, task_run: Any, state: State[Any]) -> bool:
            return may(state) and bool(await theirs(task, task_run, state))

        return ask

    def condition(task: Any, task_run: Any, state: State[Any]) -> bool:
        return may(state) and bool(theirs(task, task_run, state))

    return condition


def task_function(spec: AppSpec, name: str, asynchronous: bool) -> Callable[..., Any]:
    """Return the function of a task that runs a job, with the component's signature."""
    signature = signature_of(spec.launch)

    async def run(*args: object, **kwargs: object) -> Any:
        made = _task_job(spec, signature.bind(*args, **kwargs))
        try:
            with made.step.ending_with_its_task(), spec.meanwhile(made.step):
                results = await made.step.run_async()
        except StateReturned as exc:
            return _prefect_state(exc.state)
        made.traces.collected(results, spec.assets)
        return results

    def run_blocking(*args: object, **kwargs: object) -> Any:
        made = _task_job(spec, signature.bind(*args, **kwargs))
        try:
            with made.step.ending_with_its_task(), spec.meanwhile(made.step):
                results = made.step.run()
        except StateReturned as exc:
            return _prefect_state(exc.state)
        made.traces.collected(results, spec.assets)
        return results

    function: Any = run_blocking
    if asynchronous:
        function = run
    function.__signature__ = signature
    function.__name__ = function.__qualname__ = name
    function.__doc__ = description_of(spec.launch)
    return function  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _TaskJob:
    """The job of a task run, and where Prefect shows it."""

    step: PrefectStep
    traces: Traces


def _task_job(spec: AppSpec, call: inspect.BoundArguments) -> _TaskJob:
    """Return the job of the task run around this code. Nothing is submitted yet.

    Raises:
        ConfigError: outside of a task run.
    """
    launch = launch_of(spec.launch, call)
    task = TaskRunContext.get()
    if task is None:
        raise ConfigError("a job's task runs inside a task run: call the task, not its function")
    made = call.arguments.get(CALL)
    unit = None
    called_by = ""
    if isinstance(made, Call) and made.caller is not None:
        called_by = made.caller.counted_in
        unit = made.unit or unit_of_call(
            task.task.name, made.caller, asked_for(launch, call), task.task_run.id
        )
    if spec.namespace is None:  # a trial of a search has the name of its component
        launch = named(launch, getattr(task.task, "given_name", None))
    run = RunContext.here(task.task.name, unit)
    cluster = None
    if spec.cluster is not None:
        cluster = cluster_named(spec.cluster)
    traces = _traces(spec, run)
    step = PrefectStep(
        run,
        on_cluster(launch, cluster),
        within_time_limit(run, spec.options),
        traces=traces,
        key=spec.key,
        namespace=spec.namespace,
        cluster=cluster,
        inherit_env=spec.inherit_env,
        arguments=spec.context_args,
        retries=task.task.retries,
        called_by=called_by,
    )
    note_done(traces.notes)
    return _TaskJob(step, traces)


def _traces(spec: AppSpec, run: RunContext) -> Traces:
    stderr_level = None
    if spec.stderr_level is not None:
        stderr_level = logging.getLevelNamesMapping()[spec.stderr_level]
    return Traces(
        run,
        get_run_logger(),
        artifacts=spec.artifacts,
        events=spec.events,
        stderr_level=stderr_level,
    )


def _prefect_state(state: ReturnedState) -> State[Any]:
    return State(type=StateType(state.type), name=state.name, message=state.message)
