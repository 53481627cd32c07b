"""Run jobs as Prefect tasks.

This holds what is Prefect's own, while the core runs the job. Prefect is imported where it is
asked. The state table and the tests of the policy do without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeGuard

import transload_prefect
from transload.errors import SpecError, TransloadError, TransloadTimeout
from transload.pipelines import (
    AdapterIO,
    Again,
    Detached,
    Driver,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    LifecycleAdapter,
    host_runner,
)
from transload.runner import Job
from transload_prefect.context import RunContext
from transload_prefect.states import ENDINGS, INTERRUPTED, STATES

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload_prefect.cluster import TransloadCluster
    from transload_prefect.traces import Traces
    from transload_search import Search

HOST: Final = "prefect"
"""Session name of all handles."""


@dataclass(frozen=True)
class JobContext:
    """A job of a flow run, or of a script, with where it runs and what its user set.

    Args:
        run: where in Prefect it runs.
        traces: where Prefect keeps and shows what is known of it.
        key: readable part of the job's id, instead of the name.
        namespace: tells the job from those of others, instead of the flow run's id.
        cluster: where it goes, in place of a scheduler.
        inherit_env: give the job the environment of the flow's process.
        context_args: arguments that a component may declare (``trial_idx`` …).
        retries: how often Prefect tries again, or None if that is not known.
        called_by: the try of an ordinary task that calls this job's task, or "" for the flow.
    """

    run: RunContext
    traces: Traces
    key: str | None = None
    namespace: str | None = None
    cluster: TransloadCluster | None = None
    inherit_env: bool = False
    context_args: Mapping[str, Any] = field(default_factory=dict)
    retries: int | None = None
    called_by: str = ""

    @property
    def generation(self) -> str:
        """Which generation of the job it is. Another begins when Prefect wants it done again."""
        if self.traces.notes is None:
            return "0"
        return self.traces.notes.generation


class ReturnedState(NamedTuple):
    """A state that a task returns, with its type, name and message."""

    type: str
    name: str
    message: str


class StateReturned(Exception):
    """The task is to return a state in place of results, and Prefect must not try again.

    Args:
        state: what to return.
    """

    def __init__(self, state: ReturnedState) -> None:
        super().__init__(state.message)
        self.state = state


class PrefectAdapter(LifecycleAdapter[JobContext]):
    """The adapter that ``transload.pipelines.get_adapter("prefect")`` returns."""

    name = HOST
    states = STATES
    endings: ClassVar[Mapping[Ending, tuple[str, str] | None]] = ENDINGS

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return a task, or for a `transload_search.Search` a flow.

        Args:
            source: as of `app_task`, or a search.
            host_options: arguments of `app_task`, or of `search_flow`.

        Raises:
            SpecError: if the source is wrong.
            ConfigError: for a wrong or unknown setting.
        """
        # by the package's own names, since tasks import this module
        if _is_search(source):
            return transload_prefect.search_flow(source, **host_options)
        return transload_prefect.app_task(source, **host_options)

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return what the task, or the first trial of a search, would submit.

        Arguments and errors as of `convert`.
        """
        if _is_search(source):
            return transload_prefect.dry_run_search(source, **host_options)
        task = transload_prefect.app_task(source, **host_options)
        return transload_prefect.dry_run_task(task, context_args={})

    def identity(self, context: JobContext) -> Identity:
        """Return whose job it is.

        It is equal for all tries of a task, and whenever the flow run is run again.
        """
        run = context.run
        run_id = run.flow_run_id
        if run.unit is None:
            run_id = run.task_run_id
        return Identity(
            HOST,
            (context.namespace or str(run_id), context.generation),
            (run.unit or "", context.key or run.name),
        )

    def asked(self, context: JobContext) -> Mapping[str, Any]:
        """Return the words of this try: the task run, and which run of the flow it is in."""
        run = context.run
        words: dict[str, Any] = {}
        if run.flow_run_id is not None:
            words["flow_run"] = str(run.flow_run_id)
        if run.flow is not None and run.flow.flow_run is not None:
            words["flow_run_name"] = run.flow.flow_run.name
        if run.task is None:
            return words
        words["task_run"] = str(run.task.task_run.id)
        words["task_run_name"] = run.task.task_run.name
        if run.unit is not None:
            words["flow_run_count"] = run.task.task_run.flow_run_run_count
            words["called_by"] = context.called_by
        return words

    def asked_anew(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Refuse to share a job between two equal tasks of one run of a flow.

        In the flow's own process a number tells them apart. Processes of a task runner such as Dask
        each count from 0.

        Raises:
            SpecError: if another task run of this run of the flow has the job.
        """
        of_task = "called_by" in kept and "called_by" in now
        of_run = ("flow_run", "flow_run_count", "called_by")
        same_run = all(kept.get(each) == now.get(each) for each in of_run)
        if of_task and same_run and kept.get("task_run") != now["task_run"]:
            raise SpecError(
                "two equal tasks, in processes of their own, ask for one job: give each of them a "
                "name of its own, as in app_task(…, key='first')"
            )
        return Again.NO

    def io(self, context: JobContext) -> AdapterIO:
        """Return the notes, log, events and artifacts of the job, and who is asked at its end."""
        runner = runner_of(context.cluster, context.inherit_env)
        traces = context.traces
        if traces.notes is not None:
            # not the driver: notes outlive it
            traces.notes.link = partial(_page_of, runner)
        return AdapterIO(
            runner=runner,
            store=traces.notes,
            log_store=traces.cursor,
            sink=traces.sink,
            log=traces.log,
            on_change=traces.changed,
            show_progress=traces.show_progress,
            context_args=context.context_args,
            host_retries=context.retries,
            asked=partial(_end_asked_for, context.run),
        )

    @contextmanager
    def cancel_on_exit(self, context: JobContext, driver: Driver) -> Iterator[None]:
        """Give a context in which the job ends with its flow run or its task, if that was asked for.

        A time limit of Prefect's arrives as an exception of one kind or another. It is the
        driver's own limit too, and cancels the job in any case.
        """
        from transload_prefect.watch import watching

        with watching(context.run, driver):
            try:
                yield
            except TransloadTimeout:
                _give_up(driver)  # it may have passed while the scheduler was away
                raise
            except TransloadError:
                raise
            except BaseException:
                _give_up(driver)
                raise

    def translate(self, error: TransloadError, context: JobContext) -> Exception:
        """Return the error itself, which Prefect may retry, or that the task returns a state."""
        state = INTERRUPTED
        if not isinstance(error, Detached) or error.asked:
            ending = self.endings[Ending.of(error)]
            if ending is None:
                return error
            state = ending
        kind, name = state
        return StateReturned(ReturnedState(kind, name, str(error)))


ADAPTER: Final = PrefectAdapter()


def runner_of(cluster: TransloadCluster | None = None, inherit_env: bool = False) -> Runner:
    """Return the runner that all flow runs of this process share.

    With a cluster it is one that has the cluster's secrets.
    """
    runner = host_runner(HOST, inherit_env=inherit_env, secret_sources={"prefect": _secret})
    if cluster is None:
        return runner
    return runner.with_clusters(
        cluster.to_cluster(), secret_sources={"prefect": partial(_secret, block=cluster)}
    )


def on_cluster(launch: Launch, cluster: TransloadCluster | None) -> Launch:
    """Return the launch with a cluster as its place, unless a call names another one."""
    if cluster is None or launch.scheduler is not None:
        return launch
    return replace(launch, scheduler=cluster.name)


def within_time_limit(context: RunContext, options: ExecutionOptions) -> ExecutionOptions:
    """Return the options with the time limit of the running task, if it has one, as their deadline.

    In a thread of a task runner, Prefect's own time limit cannot interrupt anything. Where it can,
    it is over no sooner than this one, which tells the two from a kill.
    """
    if context.task is None:
        return options
    seconds = context.task.task.timeout_seconds
    if not seconds:
        return options
    deadline = context.task.start_time.timestamp() + seconds
    if options.deadline:
        deadline = min(deadline, options.deadline)
    return replace(options, deadline=deadline)


def _secret(what: str, block: TransloadCluster | None = None) -> str:
    from transload_prefect.cluster import secret_of

    return secret_of(what, block)


def _page_of(runner: Runner, handle: str) -> str | None:
    return Job(handle, runner).page()


def _end_asked_for(context: RunContext) -> bool | None:
    from transload_prefect.watch import end_asked_for

    return end_asked_for(context)


def _give_up(driver: Driver, pause: float = 1.0) -> None:
    """Do what a kill does, again and again while the scheduler is away and this process lives."""
    from transload_prefect.background import background

    asking = background("ask")
    if not driver.give_up() and not asking.ending:
        asking.post(partial(_give_up, driver, min(2 * pause, 30.0)), after=pause)


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search. Without the extra transload-search nothing is."""
    return type(source).__module__.startswith("transload_search.")
