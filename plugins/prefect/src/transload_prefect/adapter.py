"""Run jobs as Prefect tasks.

This holds what is Prefect's own, while the core runs the job. Prefect is imported where it is
asked. The state table and the tests of the policy do without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

import transload_prefect
from transload.errors import SpecError, TransloadError, TransloadTimeout
from transload.pipelines import (
    Adapter,
    Again,
    AppLost,
    Detached,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    Step,
    host_runner,
)
from transload.runner import Job
from transload_prefect.context import RunContext
from transload_prefect.states import ENDINGS, INTERRUPTED, STATES

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.schedulers.api import Stream
    from transload.specs import AppState, AppStatus
    from transload_prefect.cluster import TransloadCluster
    from transload_prefect.traces import Traces
    from transload_search import Search

HOST: Final = "prefect"
"""Session name of all handles."""


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


class PrefectStep(Step):
    """The job of a task run.

    Args:
        run: where in Prefect it runs.
        launch: what to submit.
        options: how the job is run.
        traces: where Prefect shows what is known of it.
        key: readable part of the job's id, instead of the name.
        namespace: tells the job from those of others, instead of the flow run's id.
        cluster: where it goes, in place of a scheduler.
        inherit_env: give the job the environment of the flow's process.
        arguments: what a component may declare (``trial_idx`` …).
        retries: how often Prefect tries again, or None if that is not known.
        called_by: the try of an ordinary task that calls this job's task, or "" for the flow.
    """

    host = HOST

    def __init__(
        self,
        run: RunContext,
        launch: Launch,
        options: ExecutionOptions,
        *,
        traces: Traces,
        key: str | None = None,
        namespace: str | None = None,
        cluster: TransloadCluster | None = None,
        inherit_env: bool = False,
        arguments: Mapping[str, Any] | None = None,
        retries: int | None = None,
        called_by: str = "",
    ) -> None:
        notes = traces.notes
        lost_before = run.is_retried or (notes is not None and notes.lost)
        super().__init__(
            launch,
            options,
            runner=runner_of(cluster, inherit_env),
            arguments=arguments,
            tried=int(lost_before),
            one_machine=True,
            host_retries=retries,
            hint=None if notes is None else notes.handle,
        )
        self.run_context = run
        self._traces = traces
        self._name = key or run.name
        self._namespace = namespace
        self._called_by = called_by
        self._generation = "0"
        self._shown: AppState | None = None
        if notes is not None:
            self._generation = notes.generation
            notes.link = partial(_page_of, self.runner)  # not the step: notes outlive it

    def identity(self) -> Identity:
        """Return whose job it is.

        It is equal for all tries of a task, and whenever the flow run is run again.
        """
        run = self.run_context
        run_id = run.flow_run_id
        if run.unit is None:
            run_id = run.task_run_id
        words = (self._namespace or str(run_id), self._generation)
        return Identity(HOST, words, (run.unit or "", self._name))

    def words(self) -> dict[str, Any]:
        """Return the words of this try: the task run, and which run of the flow it is in."""
        from prefect.utilities.urls import url_for

        run = self.run_context
        words: dict[str, Any] = {}
        if run.flow_run_id is not None:
            words["flow_run"] = str(run.flow_run_id)
            words["url"] = url_for("flow-run", run.flow_run_id)
        if run.flow is not None and run.flow.flow is not None:
            words["flow"] = run.flow.flow.name
        if run.flow is not None and run.flow.flow_run is not None:
            words["flow_run_name"] = run.flow.flow_run.name
        if run.task is None:
            return words
        words["task_run"] = str(run.task.task_run.id)
        words["task_run_name"] = run.task.task_run.name
        words["url"] = url_for("task-run", run.task.task_run.id)
        if run.unit is not None:
            words["flow_run_count"] = run.task.task_run.flow_run_run_count
            words["called_by"] = self._called_by
        return words

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
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

    def say(self, text: str) -> None:
        """Log a line of the adapter's own."""
        self._traces.log(text)

    def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Log a line of a replica."""
        self._traces.sink(role, replica, stream, line)

    def changed(self, status: AppStatus) -> None:
        """Show what became of the job, and how far it is."""
        handle = str(self.handle)
        if status.state is not self._shown:
            self._shown = status.state
            self._traces.changed(handle, status)
        if status.progress is not None:
            self._traces.show_progress(handle, status)

    def asked(self) -> bool | None:
        """Tell whether somebody asked for the end of the run, or None if Prefect does not answer."""
        from transload_prefect.watch import end_asked_for

        return end_asked_for(self.run_context)

    @contextmanager
    def ending_with_its_task(self) -> Iterator[None]:
        """Give a context in which the job ends with its flow run or its task, if that was asked for.

        An error becomes what Prefect acts on. A time limit of Prefect's arrives as an exception of
        one kind or another. It is the step's own limit too, and cancels the job in any case.

        Raises:
            StateReturned: if the task is to return a state.
        """
        from transload_prefect.watch import watching

        try:
            with watching(self.run_context, self):
                yield
        except TransloadError as exc:
            if isinstance(exc, AppLost) and self._traces.notes is not None:
                self._traces.notes.was_lost(exc.handle)
            if isinstance(exc, TransloadTimeout):
                _give_up(self)  # it may have passed while the scheduler was away
            state = _state_for(exc)
            if state is None:
                raise
            raise StateReturned(ReturnedState(*state, str(exc))) from exc
        except BaseException:
            _give_up(self)
            raise


def _state_for(error: TransloadError) -> tuple[str, str] | None:
    """Return type and name of the state for an error, or None if Prefect may retry it."""
    if isinstance(error, Detached) and not error.asked:
        return INTERRUPTED
    return ENDINGS[Ending.of(error)]


def _give_up(step: Step, pause: float = 1.0) -> None:
    """Do what a kill does, again and again while the scheduler is away and this process lives."""
    from transload_prefect.background import background

    asking = background("ask")
    if not step.give_up() and not asking.ending:
        asking.post(partial(_give_up, step, min(2 * pause, 30.0)), after=pause)


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


# -- what is registered


def convert(source: Any, **host_options: Any) -> Any:
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


def show(source: Any, **host_options: Any) -> str:
    """Return what the task, or the first trial of a search, would submit.

    Arguments and errors as of `convert`.
    """
    if _is_search(source):
        return transload_prefect.dry_run_search(source, **host_options)
    task = transload_prefect.app_task(source, **host_options)
    return transload_prefect.dry_run_task(task, context_args={})


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search. Without the extra transload-search nothing is."""
    return type(source).__module__.startswith("transload_search.")


def adapter() -> Adapter:
    """Return what is registered of this plugin."""
    return Adapter(HOST, convert=convert, dry_run=show, states=STATES)
