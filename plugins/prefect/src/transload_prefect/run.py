"""Running an app inside a flow run: the policy is core's, here it only meets Prefect.

Prefect is imported where it is asked: the state table and the tests of the policy do without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.errors import TransloadError, TransloadTimeout
from transload.pipelines import (
    Detached,
    Ending,
    Execution,
    ExecutionOptions,
    Identity,
    Launch,
    host_runner,
)
from transload.runner import Job
from transload_prefect.states import ENDINGS, INTERRUPTED

if TYPE_CHECKING:
    from prefect.context import FlowRunContext, TaskRunContext

    from transload.runner import AppResults, Runner
    from transload_prefect.cluster import TransloadCluster
    from transload_prefect.traces import Traces

HOST: Final = "prefect"
"""Session name of all handles."""


def runner_of(cluster: TransloadCluster | None = None, inherit_env: bool = False) -> Runner:
    """Return the runner that all flow runs of this process share; with a cluster, one that has its
    own secrets.
    """
    runner = host_runner(HOST, inherit_env=inherit_env, secret_sources={"prefect": _secret})
    if cluster is None:
        return runner
    return runner.with_clusters(
        cluster.to_cluster(), secret_sources={"prefect": partial(_secret, block=cluster)}
    )


def _secret(what: str, block: TransloadCluster | None = None) -> str:
    from transload_prefect.cluster import secret_of

    return secret_of(what, block)


@dataclass(frozen=True)
class Context:
    """Where in Prefect an app runs: in which runs, and in whose code."""

    name: str  # of the task or block
    unit: str | None  # which app of the flow run; None: outside of one
    flow_run_id: Any
    task_run_id: Any = None
    flow: FlowRunContext | None = None
    task: TaskRunContext | None = None

    @staticmethod
    def here(name: str, unit: str | None) -> Context:
        """Return the context of the code that runs."""
        from prefect.context import FlowRunContext, TaskRunContext

        flow, task = FlowRunContext.get(), TaskRunContext.get()
        if flow is None or flow.flow_run is None:
            run = task.task_run if task is not None else None
            return Context(name, unit, run and run.flow_run_id, run and run.id, task=task)
        return Context(
            name, unit, flow.flow_run.id, task.task_run.id if task is not None else None, flow, task
        )


def identity_of(
    context: Context, key: str | None = None, namespace: str | None = None, generation: str = "0"
) -> Identity:
    """Return whose app it is: equal for all tries of a task, and whenever the flow run is run
    again.

    Args:
        context: where it runs.
        key: readable part of the app's id, instead of the name.
        namespace: tells the app from those of others, instead of the flow run's id.
        generation: from the notes about the app: another one begins when Prefect wants it done
            again.
    """
    run = context.flow_run_id if context.unit is not None else context.task_run_id
    return Identity(
        HOST, namespace or str(run), (context.unit or "", key or context.name), generation
    )


def execution_of(
    launch: Launch,
    options: ExecutionOptions,
    identity: Identity,
    traces: Traces,
    *,
    cluster: TransloadCluster | None = None,
    inherit_env: bool = False,
    **more: Any,
) -> Execution:
    """Return the execution of an app.

    Args:
        launch: what to run.
        options: the user's settings; the task's own limit is added here.
        identity: whose app it is.
        traces: where Prefect keeps and shows what is known of it.
        cluster: where it goes, in place of a scheduler.
        inherit_env: give the job the environment of the flow's process.
        more: arguments of ``transload.pipelines.Execution``.
    """
    execution = Execution(
        runner_of(cluster, inherit_env),
        on_cluster(launch, cluster),
        identity,
        within_time_limit(traces.context, options),
        store=traces.notes,
        log_store=traces.cursor,
        sink=traces.sink,
        log=traces.log,
        on_change=lambda status: traces.changed(execution, status),
        asked=partial(_end_asked_for, traces.context),
        **more,
    )
    if traces.notes is not None:
        # not the execution: notes outlive it
        traces.notes.link = partial(_page_of, execution.runner)
    return execution


def _page_of(runner: Runner, handle: str) -> str | None:
    return Job(handle, runner).page()


def _end_asked_for(context: Context) -> bool | None:
    from transload_prefect.watch import end_asked_for

    return end_asked_for(context)


def on_cluster(launch: Launch, cluster: TransloadCluster | None) -> Launch:
    """Return the launch with a cluster as its place, unless a call names another one."""
    return (
        launch
        if cluster is None or launch.scheduler is not None
        else replace(launch, scheduler=cluster.name)
    )


def within_time_limit(context: Context, options: ExecutionOptions) -> ExecutionOptions:
    """Return the options with the time limit of the running task, if it has one, as their deadline.

    In a thread of a task runner, Prefect's own time limit cannot interrupt anything; where it can,
    it is over no sooner than this one, which tells the two from a kill.
    """
    seconds = context.task.task.timeout_seconds if context.task is not None else None
    if context.task is None or not seconds:
        return options
    deadline = context.task.start_time.timestamp() + seconds
    return replace(options, deadline=min(deadline, options.deadline or deadline))


def run_app(execution: Execution) -> AppResults | ReturnedState:
    """Start or attach, wait for the end; return results, or what Prefect is to be told by a
    returned state.

    Raises:
        TransloadError: an end that Prefect's retries may answer.
    """
    with translate_errors() as told, cancel_on_exit(execution):
        return execution.run()
    return told[0]


async def run_app_async(execution: Execution) -> AppResults | ReturnedState:
    """Do what `run_app` does, without blocking the event loop. Cancelling the coroutine is a kill
    of the unit.
    """
    with translate_errors() as told, cancel_on_exit(execution):
        return await execution.run_async()
    return told[0]


@contextmanager
def cancel_on_exit(execution: Execution) -> Iterator[None]:
    """End the app if its end was asked for, and else leave it, when something but an error of ours
    ends who waits.

    A time limit of Prefect's arrives as an exception of one kind or another, depending on who
    waits; it is the execution's own limit too, and ends the app in any case.
    """
    try:
        yield
    except TransloadTimeout:
        _end(execution)  # it may have passed while the scheduler was away
        raise
    except TransloadError:
        raise
    except BaseException:
        _end(execution)
        raise


def _end(execution: Execution, pause: float = 1.0) -> None:
    """Do what a kill says; as long as a scheduler is away, and this process lives, again and
    again.
    """
    from transload_prefect.background import background

    asking = background("ask")
    if not execution.give_up() and not asking.ending:
        asking.post(partial(_end, execution, min(2 * pause, 30.0)), after=pause)


@contextmanager
def translate_errors() -> Iterator[list[ReturnedState]]:
    """Turn errors into states to be returned, where Prefect must not retry them; the others are
    raised.
    """
    told: list[ReturnedState] = []
    try:
        yield told
    except TransloadError as exc:
        ending = ending_of(exc)
        if ending is None:
            raise
        told.append(ending)


class ReturnedState(NamedTuple):
    """A state that a task returns."""

    type: str
    name: str
    message: str


def ending_of(error: TransloadError) -> ReturnedState | None:
    """Return the state that Prefect is told an error by; None: it is raised."""
    if isinstance(error, Detached) and not error.asked:
        return ReturnedState(*INTERRUPTED, str(error))
    return (told := ENDINGS[Ending.of(error)]) and ReturnedState(*told, str(error))
