"""Provide jobs as Prefect's job blocks, which are saved once and triggered anywhere."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, ClassVar, Final
from uuid import uuid4

from prefect.blocks.abstract import JobBlock, JobRun
from pydantic import Field, PrivateAttr, model_validator

from transload.errors import ConfigError
from transload.pipelines import (
    JOB_SETTINGS,
    Driver,
    ExecutionOptions,
    Launch,
    caller_folder,
    read_settings,
    split_overrides,
)
from transload.runner import AppResults
from transload.specs import nearest
from transload_prefect.adapter import ADAPTER, JobContext, on_cluster, within_time_limit
from transload_prefect.again import note_done
from transload_prefect.arguments import named
from transload_prefect.cluster import TransloadCluster
from transload_prefect.context import RunContext
from transload_prefect.traces import Traces
from transload_prefect.units import in_async_code, next_unit

_SLUG: Final = "block_type_slug"
"""What Prefect itself adds to the values of a block."""


class AppJobRun(JobRun[AppResults]):
    """One run of an `AppJob`.

    Every method works in both kinds of code: in async code it returns an awaitable.

    Attributes:
        handle: the job.
    """

    def __init__(self, context: JobContext, driver: Driver) -> None:
        self._context = context
        self._driver = driver

    @property
    def handle(self) -> str:
        """The job's handle."""
        return self._driver.handle or ""

    def status(self) -> Any:
        """Return the job's `transload.specs.AppStatus`, or None if the job is no longer there."""
        return self._driver.runner.status(self.handle)

    def wait_for_completion(self) -> Any:
        """Wait until the job has ended, its logs in the run logger.

        Raises:
            AppFailed: if it failed.
            AppCancelled: if it was cancelled.
            AppLost: if it is gone.
            StateUnknown: if patience is exhausted.
        """
        if in_async_code():
            return self._wait_async()
        return self._wait()

    def fetch_result(self) -> Any:
        """Return the `transload.runner.AppResults` of a job that has ended well.

        Raises:
            ConfigError: if it has not ended.
            AppFailed: if it failed.
        """
        if in_async_code():
            return asyncio.to_thread(self._collect)
        return self._collect()

    def cancel(self) -> Any:
        """Ask for the job's end, without waiting."""
        cancel = partial(self._driver.runner.cancel, self.handle)
        if in_async_code():
            return asyncio.to_thread(cancel)
        return cancel()

    def _wait(self) -> None:
        with ADAPTER.cancel_on_exit(self._context, self._driver):
            self._driver.follow()
        self._collect()

    async def _wait_async(self) -> None:
        with ADAPTER.cancel_on_exit(self._context, self._driver):
            await self._driver.follow_async()
        await asyncio.to_thread(self._collect)

    def _collect(self) -> AppResults:
        status = self._driver.status
        if status is None or not status.is_terminal():
            self._driver.poll()
        results = self._driver.collect()
        self._context.traces.collected(results)
        return results


class AppJob(JobBlock[AppResults]):
    """An app definition, a component or a command, and where it goes.

    In a flow, a run reattaches to its job after a crash, as a task does. Elsewhere each ``trigger``
    starts a new job.

    Example:
        >>> AppJob(component="utils.echo", component_args={"msg": "hello"}).save("hello")  #
        doctest: +SKIP
        >>> run = AppJob.load("hello").trigger()  # doctest: +SKIP
        >>> run.wait_for_completion(); run.fetch_result()  # doctest: +SKIP
    """

    _block_type_name: ClassVar[str] = "Transload App"
    _block_type_slug: ClassVar[str] = "transload-app"
    _description: ClassVar[str] = "Runs a transload job on any of its schedulers."

    app: dict[str, Any] | None = Field(
        default=None, description="An AppDef as JSON; or give a component."
    )
    component: str | None = Field(
        default=None, description="Name of a component: utils.echo, package.module:function."
    )
    command: list[str] | None = Field(
        default=None, description="A command, in place of an app definition or a component."
    )
    component_args: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of the component."
    )
    image: str | None = Field(default=None, description="What the job runs in.")
    replicas: int | None = Field(default=None, description="How many of each role.")
    cpu: float | None = Field(default=None, description="Cores of each replica.")
    gpu: int | None = Field(default=None, description="GPUs of each replica.")
    mem: str | None = Field(default=None, description="Memory of each replica: 8G.")
    mounts: list[str] = Field(
        default_factory=list, description="type=bind,src=/data,dst=/data, and so on."
    )
    env: dict[str, str] = Field(default_factory=dict, description="Variables of the job.")
    secrets: dict[str, str] = Field(
        default_factory=dict, description="Variables of the job: env:NAME, file:PATH …"
    )
    time_limit: str | None = Field(default=None, description="End the job after this long: 2h.")
    notice: str | None = Field(
        default=None, description="Warn the job this long before its end: 5m."
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Other settings of the job: segment, retries, checkpoints, stall_after …",
    )
    scheduler: str | None = Field(
        default=None, description="Where to run it; empty: the configured one, else local."
    )
    cluster: TransloadCluster | None = Field(
        default=None, description="Where to run it, in place of a scheduler."
    )
    cfg: dict[str, Any] = Field(default_factory=dict, description="Run options of the scheduler.")
    workspace: str | None = Field(
        default=None, description="Local folder that travels with the job."
    )
    tracker_base: str | None = Field(default=None, description="Where the job reports results.")
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
        for name, value in (self.model_extra or {}).items():
            if name == _SLUG:
                continue
            hint = nearest(name, list(type(self).model_fields))
            raise ConfigError(f"{name}={value!r}: no setting of an AppJob: {hint}")
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
        settings: dict[str, Any] = {}
        for name in JOB_SETTINGS:
            value = getattr(self, name, None)
            if value not in (None, [], {}):
                settings[name] = value
        overrides, _ = split_overrides({**settings, "overrides": self.overrides})
        read_settings(overrides)  # a wrong one is found when the block is made
        folder = caller_folder("transload_prefect")
        return Launch(args=self.component_args, folder=folder, overrides=overrides, **given)

    def _options(self) -> ExecutionOptions:
        try:
            return ExecutionOptions(**self.options)
        except TypeError as exc:
            raise ConfigError(f"options={self.options!r}: {exc}") from exc

    def trigger(self) -> Any:
        """Start the job, or reattach to it.

        Returns:
            Its `AppJobRun`, or an awaitable of it in async code.

        Raises:
            SubmitError: if it was not taken.
            SpecError: if the job is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        name = self._block_document_name or self._name
        run = RunContext.here(name, next_unit(f"block:{name}"))
        in_flow = run.flow is not None
        context = JobContext(
            run,
            Traces(run, self.logger, artifacts=True, events=in_flow),
            namespace=None if in_flow else uuid4().hex,  # elsewhere each start is another job
            cluster=self.cluster,
            inherit_env=self.inherit_env,
        )
        launch = on_cluster(named(self._launch(), self._block_document_name), self.cluster)
        options = within_time_limit(run, self._options())
        driver = ADAPTER.driver(context, launch, options)
        note_done(context.traces.notes, by_task=False)
        if in_async_code():
            return self._start_async(context, driver)
        with ADAPTER.cancel_on_exit(context, driver):
            driver.start()
        return AppJobRun(context, driver)

    async def _start_async(self, context: JobContext, driver: Driver) -> AppJobRun:
        with ADAPTER.cancel_on_exit(context, driver):
            await driver.start_async()
        return AppJobRun(context, driver)
