"""Provide the worker type ``transload``, which runs flow runs as jobs on any scheduler."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import anyio.abc
import httpx
from prefect.client.schemas.objects import StateType
from prefect.exceptions import InfrastructureNotAvailable, InfrastructureNotFound, ObjectNotFound
from prefect.states import Cancelled
from prefect.workers.base import BaseWorker, BaseWorkerResult

from transload.errors import (
    AppNotFound,
    ConfigError,
    PluginError,
    SchedulerUnavailable,
    SpecError,
    TransloadError,
)
from transload.pipelines import (
    AdapterIO,
    AppLost,
    Driver,
    ExecutionOptions,
    Identity,
    Launch,
    LifecycleState,
)
from transload.specs import AppState
from transload_prefect.adapter import HOST, runner_of
from transload_prefect.adopt import can_be_seen, is_cancelling, orphans
from transload_prefect.context import RunContext
from transload_prefect.traces import Traces, without_prefects
from transload_prefect.variables import AppJobConfiguration, AppVariables

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

    from transload.runner import Runner
    from transload.specs import AppStatus

ENDED: Final = frozenset({AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED})
"""Ends of a job whose flow run is scheduled again, since it had not begun to run it."""

QUEUE_INTERVAL: Final = 5.0
"""Seconds between two questions whether a flow run was cancelled.

This holds as long as its job has not begun to run it.
"""

RUN_INTERVAL: Final = 10.0
"""Seconds between these questions from then on."""

_TAIL: Final = 20
"""How many last lines of a job that failed are shown, where its output is not."""


class AppWorkerResult(BaseWorkerResult):
    """How the job of a flow run ended, with its handle and the exit status of its process."""


class TransloadWorker(BaseWorker[AppJobConfiguration, AppVariables, AppWorkerResult]):
    """Runs each flow run as a job.

    The job outlives the worker. A worker that is started again looks after the flow runs that it
    finds. So does another one once Prefect takes the first one for dead. None is started a second
    time.
    """

    type = "transload"
    job_configuration = AppJobConfiguration
    job_configuration_variables = AppVariables
    _description = "Run flow runs as transload jobs: on this machine, on Slurm, on Kubernetes, wherever a scheduler is."
    _display_name = "Transload"

    @cached_property
    def _followed(self) -> set[UUID]:
        """The flow runs whose jobs this worker waits for."""
        return set()

    async def run(
        self,
        flow_run: FlowRun,
        configuration: AppJobConfiguration,
        task_status: anyio.abc.TaskStatus[Any] | None = None,
    ) -> AppWorkerResult:
        """Submit a flow run as a job, or find it, and wait for its end.

        Raises:
            TransloadError: if it was not taken, or is lost.
        """
        self._followed.add(flow_run.id)
        try:
            driver = await asyncio.to_thread(self._start, flow_run, configuration)
            handle = driver.handle or ""
            self._logger.info("flow run %s is %s", flow_run.name, handle)
            if task_status is not None:
                task_status.started(handle)
            status = await self._follow(flow_run.id, driver)
            code = _exit_status(status)
            if code:
                cancelled = await self._was_cancelled(flow_run.id, handle)
                if cancelled or not await self._is_open(flow_run, handle):
                    code = 0  # or Prefect would call it crashed
                else:
                    await asyncio.to_thread(self._log_failure, flow_run, driver)
            return AppWorkerResult(identifier=handle, status_code=code)
        finally:
            self._followed.discard(flow_run.id)

    def _start(
        self,
        flow_run: FlowRun,
        configuration: AppJobConfiguration,
        resubmit_on: frozenset[AppState] = ENDED,
    ) -> Driver:
        """Submit the job of a flow run, unless it is there already. Return what looks after it.

        Args:
            flow_run: what the job is to run.
            configuration: how.
            resubmit_on: ends of a job that are answered by another one.
        """
        if configuration.cluster is not None and configuration.scheduler is not None:
            raise ConfigError(
                f"cluster: cannot be given beside scheduler={configuration.scheduler!r}"
            )
        # what is one flow run's is in no other's reach: flow runs are submitted side by side
        runner = runner_of(configuration.cluster).with_environ(
            {**os.environ, **configuration.secret_values()}
        )
        name = (
            configuration.cluster.name
            if configuration.cluster is not None
            else configuration.scheduler
        )
        launch = Launch(
            app=configuration.to_app(runner.scheduler(name).capabilities.shares_disk),
            scheduler=name,
            cfg=configuration.cfg,
            workspace=configuration.workspace,
            pass_env=configuration.pass_env,
            environment=configuration.environment,
        )
        stream = configuration.stream_output
        driver = self._driver_of(flow_run, runner, launch, stream, resubmit_on=resubmit_on)
        try:
            driver.start()
        except SpecError as exc:
            if "image" not in configuration.settings and ".image" in str(exc):
                raise SpecError(
                    f"{exc} (set the variable image of the work pool; it needs Prefect)"
                ) from exc
            raise
        return driver

    def _driver_of(
        self,
        flow_run: FlowRun,
        runner: Runner,
        launch: Launch | None,
        stream: bool,
        *,
        resubmit_on: frozenset[AppState] | None = None,
    ) -> Driver:
        # a flow run that is run again (a retry, a resume) is another job, but submitting one twice
        # is not
        words = (str(flow_run.id), str(flow_run.run_count))
        identity = Identity(HOST, words, ("flow-run", flow_run.name))
        tail_lines = _TAIL
        if stream:
            tail_lines = 0
        options = ExecutionOptions(patience=float("inf"), tail_lines=tail_lines)
        if resubmit_on is not None:
            options = replace(options, resubmit_on=resubmit_on)
        state = LifecycleState(identity, options)
        if not stream:
            return Driver(launch, state, AdapterIO(runner=runner, log=self._logger.info))
        run = RunContext(flow_run.name, f"flow-run-{flow_run.run_count}", flow_run.id)
        traces = Traces(
            run,
            self.get_flow_run_logger(flow_run),
            artifacts=False,
            events=False,
            stderr_level=logging.WARNING,
        )
        io = AdapterIO(
            runner=runner,
            log=self._logger.info,
            sink=without_prefects(traces.sink),
            log_store=traces.cursor,
        )
        return Driver(launch, state, io)

    def _log_failure(self, flow_run: FlowRun, driver: Driver) -> None:
        """Log the end of a job in its flow run.

        The job may have died before Prefect started in it.
        """
        try:
            driver.collect()
        except TransloadError as exc:
            self.get_flow_run_logger(flow_run).error("%s", exc)

    # -- flow runs of a worker that died

    async def sync_with_backend(self) -> None:
        """Tell Prefect that this worker lives, and look for flow runs that nobody looks after."""
        await super().sync_with_backend()
        if self._work_pool is None or self._runs_task_group is None:
            return
        try:
            found = await orphans(self.client, self._work_pool_name, self.name)
        except httpx.HTTPError as exc:
            self._logger.warning("flow runs of other workers cannot be read: %s", exc)
            return
        for flow_run in found:
            if (
                flow_run.id not in self._followed
                and flow_run.id not in self._submitting_flow_run_ids
            ):
                self._followed.add(flow_run.id)
                self._runs_task_group.start_soon(self._adopt, flow_run)

    async def _adopt(self, flow_run: FlowRun) -> None:
        """Look after a flow run of another worker to its end.

        Prefect is told what the flow run itself does not report.
        """
        try:
            async with self._counted() as counted:
                await self._look_after(flow_run, counted)
        except ObjectNotFound:
            self._logger.debug("flow run %s was deleted", flow_run.id)
        except (
            Exception
        ) as exc:  # one that left here would end the worker, and the next one of its name
            self._logger.warning(
                "flow run %s cannot be looked after now: %s: %s",
                flow_run.id,
                type(exc).__name__,
                exc,
            )
        finally:
            self._followed.discard(flow_run.id)

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[asyncio.Task[None]]:
        """Count one against the worker's limit, from when there is room.

        No new flow run comes before it.
        """
        borrower = object()

        async def take() -> None:
            if self._limiter is not None:
                await self._limiter.acquire_on_behalf_of(borrower)

        taking = asyncio.create_task(take())
        try:
            yield taking
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            if self._limiter is not None:
                with suppress(RuntimeError):  # there was no room yet
                    self._limiter.release_on_behalf_of(borrower)

    async def _look_after(self, flow_run: FlowRun, counted: asyncio.Task[None]) -> None:
        if flow_run.infrastructure_pid:
            configuration = await self._configuration(flow_run)
            driver = await asyncio.to_thread(self._found, flow_run, configuration)
        else:
            await counted
            driver = await self._start_again(flow_run.id)
        if driver is None:
            return
        handle, status = driver.handle or "", None
        self.get_flow_run_logger(flow_run).info(
            "Worker %r looks after %s from here on", self.name, handle
        )
        with suppress(AppLost):
            status = await self._follow(flow_run.id, driver)
        if await self._was_cancelled(flow_run.id, handle):
            return
        if status is not None and not _exit_status(status):
            return
        if not await self._is_open(flow_run, handle):
            return
        how = "is lost"
        if status is not None:
            await asyncio.to_thread(self._log_failure, flow_run, driver)
            how = f"ended: {status.summary()}"
        await self._propose_crashed_state(flow_run, f"The flow run's job {handle} {how}")

    def _found(self, flow_run: FlowRun, configuration: AppJobConfiguration) -> Driver | None:
        """Return what looks after a job that an earlier worker submitted.

        It is None if the job cannot be seen from here.
        """
        runner, handle = runner_of(configuration.cluster), flow_run.infrastructure_pid or ""
        if not can_be_seen(runner, handle):
            return None
        driver = self._driver_of(flow_run, runner, None, configuration.stream_output)
        driver.attach(handle)
        return driver

    async def _start_again(self, flow_run_id: UUID) -> Driver | None:
        """Submit a flow run whose worker died around the submit.

        What was submitted is found by its id.
        """
        flow_run = await self.client.read_flow_run(flow_run_id)
        if (
            flow_run.infrastructure_pid
            or flow_run.state is None
            or flow_run.state.type is not StateType.PENDING
        ):
            return None
        try:
            configuration = await self._configuration(flow_run)
            driver = await asyncio.to_thread(self._start, flow_run, configuration, frozenset())
        except (ValueError, PluginError) as exc:  # a person must mend something
            message = f"Failed to submit flow run to infrastructure: {type(exc).__name__}: {exc}"
            await self._propose_crashed_state(flow_run, message)
            return None
        await self.client.update_flow_run(flow_run_id=flow_run.id, infrastructure_pid=driver.handle)
        return driver

    async def _configuration(self, flow_run: FlowRun) -> AppJobConfiguration:
        made: AppJobConfiguration = await self.job_configuration.resolve_for_flow_run(
            flow_run,
            client=self.client,
            work_pool=copy.deepcopy(self.work_pool),
            worker_name=self.name,
            worker_id=self.backend_id,
        )
        return made

    async def _is_open(self, submitted: FlowRun, handle: str) -> bool:
        """Tell whether Prefect still takes a flow run, whose job has failed, for one that is run.

        It does not if the flow run reported its end itself, nor if it is run again by now.

        Args:
            submitted: the flow run as it was before its job ended.
            handle: the job.
        """
        try:
            flow_run = await self.client.read_flow_run(submitted.id)
        except ObjectNotFound:
            return False
        state = None if flow_run.state is None else flow_run.state.type
        if state is StateType.PENDING:
            return bool(flow_run.run_count == submitted.run_count)
        if state in (StateType.RUNNING, StateType.PAUSED):
            return flow_run.infrastructure_pid in (None, handle)
        return False

    async def _was_cancelled(self, flow_run_id: UUID, handle: str) -> bool:
        """Tell whether a flow run whose job has ended was cancelled.

        A flow run that is being cancelled is marked as cancelled now.
        """
        try:
            flow_run = await self.client.read_flow_run(flow_run_id)
        except ObjectNotFound:
            return False
        if is_cancelling(flow_run):
            message = f"The flow run was cancelled; its job is {handle}"
            await self.client.set_flow_run_state(
                flow_run_id, Cancelled(message=message), force=True
            )
        return flow_run.state is not None and flow_run.state.type in (
            StateType.CANCELLING,
            StateType.CANCELLED,
        )

    # -- following

    async def _follow(self, flow_run_id: UUID, driver: Driver) -> AppStatus:
        """Wait for the end of a job, and cancel it if its flow run is cancelled.

        Raises:
            AppLost: if it is gone.
        """
        asking = asyncio.create_task(self._pass_cancel_on(flow_run_id, driver))
        try:
            return await driver.follow_async()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _pass_cancel_on(self, flow_run_id: UUID, driver: Driver) -> None:
        """Cancel a job whose flow run was cancelled before the job began to run it.

        A job that has begun notices by itself, and cleans up.
        """
        pause = QUEUE_INTERVAL
        while True:
            with suppress(httpx.HTTPError, ValueError):
                flow_run = await self.client.read_flow_run(flow_run_id)
                begun = flow_run.start_time is not None
                pause = RUN_INTERVAL if begun else QUEUE_INTERVAL
                cancelled = (
                    flow_run.state is not None and flow_run.state.type is StateType.CANCELLED
                )
                if cancelled or (is_cancelling(flow_run) and not begun):
                    driver.kill(asked=True)
                    return
                if flow_run.state is not None and flow_run.state.is_final():
                    return
            await asyncio.sleep(pause)

    async def kill_infrastructure(
        self, infrastructure_pid: str, configuration: AppJobConfiguration, grace_seconds: int = 30
    ) -> None:
        """Cancel the job of a flow run, and wait for its end.

        Raises:
            InfrastructureNotFound: if there is no such job.
            InfrastructureNotAvailable: if its scheduler cannot be reached from here, or does not
                end it in time.
        """
        runner = runner_of(configuration.cluster)
        try:
            await asyncio.to_thread(runner.cancel, infrastructure_pid)
            timeout = max(1.0, float(grace_seconds)) + 30.0
            await runner.job(infrastructure_pid).wait_if_there_async(timeout=timeout)
        except AppNotFound as exc:
            raise InfrastructureNotFound(f"there is no job {infrastructure_pid}") from exc
        except (SchedulerUnavailable, TimeoutError, ConfigError, PluginError) as exc:
            raise InfrastructureNotAvailable(str(exc)) from exc
        except TransloadError as exc:
            raise InfrastructureNotFound(str(exc)) from exc


def _exit_status(status: AppStatus) -> int:
    if status.state is AppState.SUCCEEDED:
        return 0
    bad = status.first_failure()
    if code := bad and bad.exit_code:
        return code if code > 0 else 128 - code
    return 143 if status.state is AppState.CANCELLED else 1
