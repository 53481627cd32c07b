"""Provide `PrefectStep`, a job of a flow run: what is Prefect's own, while the core runs the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from prefect.utilities.urls import url_for

from transload.errors import SpecError, TransloadError, TransloadTimeout
from transload.pipelines import (
    Again,
    AppLost,
    Detached,
    ExecutionOptions,
    Identity,
    Launch,
    Step,
    host_runner,
)
from transload.runner import Job
from transload_prefect.background import background
from transload_prefect.cluster import TransloadCluster, secret_of
from transload_prefect.states import HOST
from transload_prefect.watch import end_asked_for, raise_if_suspended, watching

if TYPE_CHECKING:
    from transload.runner import AppResults, Runner
    from transload.schedulers.api import Stream
    from transload.specs import AppState, AppStatus
    from transload_prefect.runs import RunContext
    from transload_prefect.traces import Traces


class PrefectStep(Step):
    """The job of a task run, or of the flow itself.

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
        assets: what the task has made, as of `transload_prefect.settings.AppSpec`.
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
        assets: bool | list[str] = False,
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
            host_retries=None if run.task is None else run.task.task.retries,
            hint=None if notes is None else notes.handle,
        )
        self.run_context = run
        self._traces = traces
        self._name = key or run.name
        self._namespace = namespace
        self._assets = assets
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
        words = (self._namespace or run.run_id, self._generation)
        return Identity(HOST, words, (run.unit, self._name))

    def words(self) -> dict[str, Any]:
        """Return the words of this try: the task run, and which run of the flow it is in."""
        run = self.run_context
        words: dict[str, Any] = {"asker": run.asker}
        if run.flow_run_id is not None:
            words["flow_run"] = str(run.flow_run_id)
            words["url"] = url_for("flow-run", run.flow_run_id)
        if run.flow is not None and run.flow.flow is not None:
            words["flow"] = run.flow.flow.name
        if run.flow is not None and run.flow.flow_run is not None:
            words["flow_run_name"] = run.flow.flow_run.name
            words["flow_run_count"] = run.flow.flow_run.run_count
        if run.task is not None:
            words["task_run"] = str(run.task.task_run.id)
            words["task_run_name"] = run.task.task_run.name
            words["url"] = url_for("task-run", run.task.task_run.id)
        return words

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Refuse to share a job between two task runs of one run of a flow.

        Within a process a number tells equal ones apart. Processes of a task runner such as Dask
        each count from 0. A key has no number.

        Raises:
            SpecError: if another task run of this run of the flow has the job.
        """
        of_run = ("flow_run", "flow_run_count")
        same_run = all(kept.get(each) == now.get(each) for each in of_run)
        if same_run and "asker" in kept and _are_two(kept["asker"], now["asker"]):
            raise SpecError(
                "two tasks ask for one job: give each of them a key of its own, as in "
                "app_task(…, key='first')"
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
        return end_asked_for(self.run_context)

    def collect(self, status: AppStatus | None = None) -> AppResults:
        """Return the results, and show them."""
        results = super().collect(status)
        self._traces.collected(results, self._assets)
        return results

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Give a context in which the job ends with its flow run or its task, if that was asked for.

        A time limit of Prefect's arrives as an exception of one kind or another. It is the step's
        own limit too, and cancels the job in any case. A suspended flow run goes on later, and so
        does its job meanwhile.
        """
        try:
            with watching(self.run_context, self):
                yield
        except Detached:
            raise_if_suspended(self.run_context)
            raise
        except TransloadError as exc:
            if isinstance(exc, AppLost) and self._traces.notes is not None:
                self._traces.notes.was_lost(exc.handle)
            if isinstance(exc, TransloadTimeout):
                _give_up(self)  # it may have passed while the scheduler was away
            raise
        except BaseException:
            _give_up(self)
            raise


def _are_two(before: list[Any], after: list[Any]) -> bool:
    """Tell whether two askers are different task runs, and not two tries of one."""
    for one, other in zip_longest(before, after):
        if one != other:
            return one is None or other is None or one[0] != other[0]
    return False


def _give_up(step: Step, pause: float = 1.0) -> None:
    """Do what a kill does, again and again while the scheduler is away and this process lives."""
    asking = background("ask")
    if not step.give_up() and not asking.ending:
        asking.post(partial(_give_up, step, min(2 * pause, 30.0)), after=pause)


def runner_of(cluster: TransloadCluster | None = None, inherit_env: bool = False) -> Runner:
    """Return the runner that all flow runs of this process share.

    With a cluster it is one that has the cluster's secrets.
    """
    runner = host_runner(HOST, inherit_env=inherit_env, secret_sources={"prefect": secret_of})
    if cluster is None:
        return runner
    return runner.with_clusters(
        cluster.to_cluster(), secret_sources={"prefect": partial(secret_of, block=cluster)}
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


def _page_of(runner: Runner, handle: str) -> str | None:
    return Job(handle, runner).page()
