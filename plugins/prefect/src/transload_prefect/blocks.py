"""Apps as Prefect's job blocks: configured and saved once, triggered from any flow or script."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar
from uuid import uuid4

from prefect.blocks.abstract import JobBlock, JobRun
from prefect.context import FlowRunContext, TaskRunContext
from pydantic import Field, PrivateAttr, model_validator

from transload.errors import ConfigError, TransloadError
from transload.pipelines import Execution, ExecutionOptions, Identity, Launch
from transload.runner import AppResults
from transload_prefect.notes import notes_of
from transload_prefect.run import HOST, Surroundings, keep_time_limit, make_execution
from transload_prefect.traces import Traces
from transload_prefect.units import next_unit
from transload_prefect.watch import told_to_stop, watch_of, within_time_limit


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class AppJobRun(JobRun[AppResults]):
    """One run of an `AppJob`.

    Every method works in both kinds of code: where an event loop runs, it returns an awaitable.

    Attributes:
        handle: the app.
    """

    def __init__(self, execution: Execution, around: Surroundings) -> None:
        self._execution = execution
        self._around = around
        self._ended = False

    @property
    def handle(self) -> str:
        """The app's handle."""
        return self._execution.handle or ""

    def status(self) -> Any:
        """Return the app's `transload.specs.AppStatus`; None if there is no such app any more."""
        return self._execution.runner.status(self.handle)

    def wait_for_completion(self) -> Any:
        """Wait until the app has ended, its logs in the run logger.

        Raises:
            AppFailed: if it failed.
            AppCancelled: if it was cancelled.
            AppLost: if it is gone.
            StateUnknown: if patience is exhausted.
        """
        return self._wait_async() if _in_event_loop() else self._wait()

    def fetch_result(self) -> Any:
        """Return the `transload.runner.AppResults` of an app that has ended well.

        Raises:
            ConfigError: if it has not ended.
            AppFailed: if it failed.
        """
        return asyncio.to_thread(self._collect) if _in_event_loop() else self._collect()

    def cancel(self) -> Any:
        """Ask for the app's end; return at once."""
        return asyncio.to_thread(self._cancel) if _in_event_loop() else self._cancel()

    def _wait(self) -> None:
        with self._until_the_end() as results:
            with self._around.watch(self._execution):
                self._execution.follow()
            results.append(self._execution.collect())

    async def _wait_async(self) -> None:
        with self._until_the_end() as results:
            with self._around.watch(self._execution):
                await self._execution.follow_async()
            results.append(await asyncio.to_thread(self._execution.collect))

    @contextmanager
    def _until_the_end(self) -> Iterator[list[AppResults]]:
        """Pass a kill on to the app, and tell once how it ended."""
        results: list[AppResults] = []
        try:
            yield results
        except TransloadError:
            raise
        except BaseException:
            # a time limit of Prefect's arrives as an exception of one kind or another, depending on who waits
            self._execution.give_up()
            keep_time_limit(self._execution)
            raise
        finally:
            if not self._ended and self._around.done is not None:
                self._ended = True
                self._around.done(self._execution, results[0] if results else None)

    def _collect(self) -> AppResults:
        if self._execution.status is None or not self._execution.status.is_terminal():
            self._execution.poll()
        return self._execution.collect()

    def _cancel(self) -> None:
        self._execution.runner.cancel(self.handle)


class AppJob(JobBlock[AppResults]):
    """An app or component, and where it goes.

    In a flow, a run is found again after a crash, as an app task is; elsewhere each ``trigger`` starts a new app.

    Example:
        >>> AppJob(component="utils.echo", args={"msg": "hello"}).save("hello")  # doctest: +SKIP
        >>> run = AppJob.load("hello").trigger()  # doctest: +SKIP
        >>> run.wait_for_completion(); run.fetch_result()  # doctest: +SKIP
    """

    _block_type_name: ClassVar[str] = "Transload App"
    _block_type_slug: ClassVar[str] = "transload-app"
    _description: ClassVar[str] = "Runs a transload app on any of its schedulers."

    app: dict[str, Any] | None = Field(default=None, description="An AppDef as JSON; or give a component.")
    component: str | None = Field(default=None, description="Name of a component: utils.echo, package.module:function.")
    args: dict[str, Any] = Field(default_factory=dict, description="Arguments of the component.")
    scheduler: str | None = Field(default=None, description="Where to run it; empty: the configured one, else local.")
    cfg: dict[str, Any] = Field(default_factory=dict, description="Run options of the scheduler.")
    workspace: str | None = Field(default=None, description="Local folder that travels with the app.")
    tracker_base: str | None = Field(default=None, description="Where the app reports results.")
    inherit_env: bool = Field(default=False, description="Give the job the whole environment of the caller.")
    options: dict[str, Any] = Field(default_factory=dict, description="patience, on_kill, startup_timeout …")

    _name: str = PrivateAttr(default="app")

    @model_validator(mode="after")
    def _check(self) -> AppJob:
        launch = self._launch()
        self._options()
        self._name = launch.name
        return self

    def _launch(self) -> Launch:
        return Launch(
            app=self.app,
            component=self.component,
            args=self.args,
            scheduler=self.scheduler,
            cfg=self.cfg,
            workspace=self.workspace,
            tracker_base=self.tracker_base,
        )

    def _options(self) -> ExecutionOptions:
        try:
            return ExecutionOptions(**self.options)
        except TypeError as exc:
            raise ConfigError(f"options={self.options!r}: {exc}") from exc

    def trigger(self) -> Any:
        """Start the app, or attach to it; return its `AppJobRun` (an awaitable of it where an event loop runs).

        Raises:
            SubmitError: if it was not taken.
            SpecError: if the app is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        around = self._surroundings()
        execution = make_execution(
            self._launch(), within_time_limit(self._options()), around, inherit_env=self.inherit_env
        )
        return self._start_async(execution, around) if _in_event_loop() else self._start(execution, around)

    @staticmethod
    def _start(execution: Execution, around: Surroundings) -> AppJobRun:
        execution.start()
        return AppJobRun(execution, around)

    @staticmethod
    async def _start_async(execution: Execution, around: Surroundings) -> AppJobRun:
        await execution.start_async()
        return AppJobRun(execution, around)

    def _surroundings(self) -> Surroundings:
        name = self._block_document_name or self._name
        flow, task = FlowRunContext.get(), TaskRunContext.get()
        flow_run = flow.flow_run if flow is not None else None
        unit = next_unit(f"block:{name}")
        task_run_id = task.task_run.id if task is not None else None
        notes = notes_of(flow_run.id, unit, name, task_run_id) if flow_run is not None and unit is not None else None
        cursor = notes.cursor if notes is not None else None
        traces = Traces(
            name,
            flow_run.id if flow_run is not None else None,
            task_run_id,
            self.logger,
            cursor,
            artifacts=True,
            events=flow_run is not None,
            stderr_level=logging.WARNING,
        )
        watch: Callable[[Execution], Any] = nullcontext
        if flow is not None and flow_run is not None:
            found, stop = watch_of(flow), told_to_stop(flow)

            def watch(execution: Execution) -> Any:
                return found.around(execution, stop)

        namespace = str(flow_run.id) if flow_run is not None and unit is not None else uuid4().hex
        return Surroundings(
            identity=Identity(HOST, namespace, (unit or "", name)),
            store=notes,
            log_store=cursor,
            sink=traces.sink,
            log=traces.log,
            on_change=traces.changed,
            watch=watch,
            done=lambda execution, results: traces.done(execution, results, False),
        )
