"""Apps as Prefect's job blocks: configured and saved once, triggered from any flow or script."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

from prefect.blocks.abstract import JobBlock, JobRun
from pydantic import Field, PrivateAttr, model_validator

from transload.errors import ConfigError
from transload.pipelines import Execution, ExecutionOptions, Launch, caller_folder
from transload.runner import AppResults
from transload_prefect.again import note_done
from transload_prefect.cluster import TransloadCluster
from transload_prefect.run import Context, cancel_on_exit, execution_of, identity_of
from transload_prefect.traces import Traces
from transload_prefect.units import in_async_code, next_unit
from transload_prefect.watch import watching


class AppJobRun(JobRun[AppResults]):
    """One run of an `AppJob`.

    Every method works in both kinds of code: in async code it returns an awaitable.

    Attributes:
        handle: the app.
    """

    def __init__(self, execution: Execution, traces: Traces) -> None:
        self._execution = execution
        self._traces = traces

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
        return self._wait_async() if in_async_code() else self._wait()

    def fetch_result(self) -> Any:
        """Return the `transload.runner.AppResults` of an app that has ended well.

        Raises:
            ConfigError: if it has not ended.
            AppFailed: if it failed.
        """
        return asyncio.to_thread(self._collect) if in_async_code() else self._collect()

    def cancel(self) -> Any:
        """Ask for the app's end; return at once."""
        cancel = partial(self._execution.runner.cancel, self.handle)
        return asyncio.to_thread(cancel) if in_async_code() else cancel()

    def _wait(self) -> None:
        with cancel_on_exit(self._execution), watching(self._traces.context, self._execution):
            self._execution.follow()
        self._collect()

    async def _wait_async(self) -> None:
        with cancel_on_exit(self._execution), watching(self._traces.context, self._execution):
            await self._execution.follow_async()
        await asyncio.to_thread(self._collect)

    def _collect(self) -> AppResults:
        if self._execution.status is None or not self._execution.status.is_terminal():
            self._execution.poll()
        results = self._execution.collect()
        self._traces.collected(results)
        return results


class AppJob(JobBlock[AppResults]):
    """An app or component, and where it goes.

    In a flow, a run is found again after a crash, as an app task is; elsewhere each ``trigger``
    starts a new app.

    Example:
        >>> AppJob(component="utils.echo", component_args={"msg": "hello"}).save("hello")  #
        doctest: +SKIP
        >>> run = AppJob.load("hello").trigger()  # doctest: +SKIP
        >>> run.wait_for_completion(); run.fetch_result()  # doctest: +SKIP
    """

    _block_type_name: ClassVar[str] = "Transload App"
    _block_type_slug: ClassVar[str] = "transload-app"
    _description: ClassVar[str] = "Runs a transload app on any of its schedulers."

    app: dict[str, Any] | None = Field(
        default=None, description="An AppDef as JSON; or give a component."
    )
    component: str | None = Field(
        default=None, description="Name of a component: utils.echo, package.module:function."
    )
    command: list[str] | None = Field(
        default=None, description="A command, in place of an app or a component."
    )
    component_args: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of the component."
    )
    scheduler: str | None = Field(
        default=None, description="Where to run it; empty: the configured one, else local."
    )
    cluster: TransloadCluster | None = Field(
        default=None, description="Where to run it, in place of a scheduler."
    )
    cfg: dict[str, Any] = Field(default_factory=dict, description="Run options of the scheduler.")
    workspace: str | None = Field(
        default=None, description="Local folder that travels with the app."
    )
    tracker_base: str | None = Field(default=None, description="Where the app reports results.")
    pass_env: list[str] = Field(
        default_factory=list, description="Patterns of variables of the caller that it gets."
    )
    environment: str | None = Field(
        default=None,
        description="What is installed for it: requirements.txt, uv.lock, a script, or none.",
    )
    inherit_env: bool = Field(
        default=False, description="Give the job the whole environment of the caller."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="patience, on_kill, startup_timeout …"
    )

    _name: str = PrivateAttr(default="app")

    @model_validator(mode="after")
    def _check(self) -> AppJob:
        launch = self._launch()
        self._options()
        self._name = launch.name
        return self

    def _launch(self) -> Launch:
        names = (
            "app",
            "component",
            "command",
            "scheduler",
            "cfg",
            "workspace",
            "tracker_base",
            "pass_env",
            "environment",
        )
        given = {name: getattr(self, name) for name in names}
        return Launch(args=self.component_args, folder=caller_folder("transload_prefect"), **given)

    def _options(self) -> ExecutionOptions:
        try:
            return ExecutionOptions(**self.options)
        except TypeError as exc:
            raise ConfigError(f"options={self.options!r}: {exc}") from exc

    def trigger(self) -> Any:
        """Start the app, or attach to it; return its `AppJobRun` (an awaitable of it in async
        code).

        Raises:
            SubmitError: if it was not taken.
            SpecError: if the app is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        name = self._block_document_name or self._name
        context = Context.here(name, next_unit(f"block:{name}"))
        in_flow = context.flow is not None
        traces = Traces(context, self.logger, artifacts=True, events=in_flow)
        # elsewhere each start is another app
        generation = "0" if traces.notes is None else traces.notes.generation
        identity = identity_of(
            context, namespace=None if in_flow else uuid4().hex, generation=generation
        )
        note_done(traces.notes, by_task=False)
        execution = execution_of(
            self._launch(),
            self._options(),
            identity,
            traces,
            cluster=self.cluster,
            inherit_env=self.inherit_env,
        )
        if in_async_code():
            return self._start_async(execution, traces)
        with cancel_on_exit(execution):
            execution.start()
        return AppJobRun(execution, traces)

    async def _start_async(self, execution: Execution, traces: Traces) -> AppJobRun:
        with cancel_on_exit(execution):
            await execution.start_async()
        return AppJobRun(execution, traces)
