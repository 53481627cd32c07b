"""The worker type ``transload``: flow runs as apps on any scheduler."""

from __future__ import annotations

import asyncio
import copy
import os
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import anyio.abc
import httpx
from prefect.client.schemas.objects import StateType
from prefect.exceptions import InfrastructureNotAvailable, InfrastructureNotFound, ObjectNotFound
from prefect.states import Cancelled
from prefect.utilities.processutils import get_sys_executable
from prefect.workers.base import BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult
from pydantic import Field

from transload.errors import AppNotFound, ConfigError, PluginError, SchedulerUnavailable, SpecError, TransloadError
from transload.pipelines import (
    Execution,
    ExecutionOptions,
    Identity,
    Launch,
    host_runner,
)
from transload.specs import AppDef, AppState, Resource, Role
from transload_prefect.adopt import ended, find, is_cancelling, orphans
from transload_prefect.run import HOST

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

    from transload.runner import Runner
    from transload.specs import AppStatus

SECRET: Final = (
    "PREFECT_API_KEY",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_CLIENT_CUSTOM_HEADERS",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL",
    "PREFECT_SERVER_DATABASE_PASSWORD",
)
"""What Prefect hands to flow runs and must not be written down with the app."""

ENDED: Final = frozenset({AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED})
"""Ends of an app whose flow run is scheduled again all the same: it had not begun to run it."""

QUEUE_INTERVAL: Final = 5.0
"""Seconds between two questions whether a flow run was cancelled, as long as its app has not begun to run it."""

_TAIL: Final = 20
"""How many last lines of an app that failed are shown."""

_SCHEDULER: Any = Field(
    default=None, title="Scheduler", description="Where flow runs go; empty: the configured one, else local."
)
_CFG: Any = Field(default_factory=dict, title="Run options", description="Run options of the scheduler.")
_IMAGE: Any = Field(default=None, title="Image", description="Image, or what the scheduler takes for one.")
_WORKSPACE: Any = Field(default=None, title="Workspace", description="Folder on the worker's machine that comes along.")
_CPU: Any = Field(default=-1, title="CPUs", description="CPUs; -1: unset.")
_GPU: Any = Field(default=-1, title="GPUs", description="GPUs; -1: unset.")
_MEM: Any = Field(default=-1, title="Memory", description="Memory in MB; -1: unset.")
_RETRIES: Any = Field(default=0, title="Retries", description="How often the scheduler starts it again.")
_TIMEOUT: Any = Field(default=None, title="Time limit", description="Seconds for the whole.")


class AppJobConfiguration(BaseJobConfiguration):
    """How a flow run becomes an app; the template of a work pool fills it in."""

    scheduler: str | None = _SCHEDULER
    cfg: dict[str, Any] = _CFG
    image: str | None = _IMAGE
    workspace: str | None = _WORKSPACE
    cpu: float = _CPU
    gpu: int = _GPU
    mem_mb: int = _MEM
    max_retries: int = _RETRIES
    timeout: float | None = _TIMEOUT

    def to_app(self) -> AppDef:
        """Return the app of a flow run; its command waits until the flow run has ended.

        Raises:
            SpecError: if a variable of the work pool is wrong.
        """
        words = _words(self.command or self._base_flow_run_command())
        if words[:1] == ["prefect"] and not self.image:
            # on this machine: the worker's own Prefect, wherever PATH leads
            words = [*shlex.split(get_sys_executable()), "-m", *words]
        env = {name: value for name, value in self.env.items() if value is not None and name not in SECRET}
        role = Role(
            name="flow",
            image=self.image or "",
            entrypoint=words[0],
            args=words[1:],
            env=env,
            secrets={name: f"env:{name}" for name in self.secret_values()},
            max_retries=self.max_retries,
            resource=Resource(cpu=self.cpu, gpu=self.gpu, memMB=self.mem_mb),
        )
        return AppDef(name="prefect-flow-run", roles=[role], metadata=dict(self.labels), timeout=self.timeout)

    def secret_values(self) -> dict[str, str]:
        """Return the secrets, which may come from a profile, by the name that `to_app` refers to."""
        return {name: value for name in SECRET if (value := self.env.get(name))}


class AppVariables(BaseVariables):
    """The variables of a work pool of type ``transload``."""

    scheduler: str | None = _SCHEDULER
    cfg: dict[str, Any] = _CFG
    image: str | None = _IMAGE
    workspace: str | None = _WORKSPACE
    cpu: float = _CPU
    gpu: int = _GPU
    mem_mb: int = _MEM
    max_retries: int = _RETRIES
    timeout: float | None = _TIMEOUT


class AppWorkerResult(BaseWorkerResult):
    """How the app of a flow run ended: its handle, and the exit status of its process."""


class TransloadWorker(BaseWorker[AppJobConfiguration, AppVariables, AppWorkerResult]):
    """Runs each flow run as an app.

    The app outlives the worker. A worker that is started again, under the same name or once Prefect takes the other one
    for dead, looks after the flow runs that it finds: none is started a second time.
    """

    type = "transload"
    job_configuration = AppJobConfiguration
    job_configuration_variables = AppVariables
    _description = "Run flow runs as transload apps: on this machine, on Slurm, on Kubernetes, wherever a scheduler is."
    _display_name = "Transload"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._followed: set[UUID] = set()

    async def run(
        self,
        flow_run: FlowRun,
        configuration: AppJobConfiguration,
        task_status: anyio.abc.TaskStatus[Any] | None = None,
    ) -> AppWorkerResult:
        """Submit a flow run as an app, or find it, and wait for its end.

        Raises:
            TransloadError: if it was not taken, or is lost.
        """
        runner = host_runner(HOST)
        self._followed.add(flow_run.id)
        try:
            handle = await asyncio.to_thread(_start, runner, flow_run, configuration, self._logger.info)
            self._logger.info("flow run %s is %s", flow_run.name, handle)
            if task_status is not None:
                task_status.started(handle)
            status = await self._follow(runner, flow_run.id, handle)
            if status is None:
                raise TransloadError(f"{handle} is lost: it was deleted, or its scheduler lost its state")
            code = _exit_status(status)
            if code and await self._was_cancelled(flow_run.id, handle):
                code = 0  # or Prefect would call it crashed
            if code:
                await asyncio.to_thread(self._tell_failure, runner, flow_run, handle, status)
            return AppWorkerResult(identifier=handle, status_code=code)
        finally:
            self._followed.discard(flow_run.id)

    def _tell_failure(self, runner: Runner, flow_run: FlowRun, handle: str, status: AppStatus) -> None:
        """Put the last words of an app into its flow run's log: it may have died before Prefect started in it."""
        execution = Execution(runner, None, Identity(HOST, "", (flow_run.name,)), ExecutionOptions(tail_lines=_TAIL))
        execution.attach(handle)
        try:
            execution.collect(status)
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
            if flow_run.id not in self._followed and flow_run.id not in self._submitting_flow_run_ids:
                self._followed.add(flow_run.id)
                self._runs_task_group.start_soon(self._adopt, flow_run)

    async def _adopt(self, flow_run: FlowRun) -> None:
        """Look after a flow run of another worker to its end, and tell Prefect what the flow run itself does not."""
        try:
            async with self._counted() as counted:
                await self._look_after(flow_run, counted)
        except ObjectNotFound:
            self._logger.debug("flow run %s was deleted", flow_run.id)
        except Exception as exc:  # one that left here would end the worker, and the next one of its name
            self._logger.warning("flow run %s cannot be looked after now: %s: %s", flow_run.id, type(exc).__name__, exc)
        finally:
            self._followed.discard(flow_run.id)

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[asyncio.Task[None]]:
        """Count one against the worker's limit, from when there is room; no new flow run comes before it."""
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
        runner = host_runner(HOST)
        if flow_run.infrastructure_pid:
            found = await find(runner, flow_run)
        else:
            await counted
            found = await self._start_again(runner, flow_run.id)
        if found is None:
            return
        handle, status = found
        self.get_flow_run_logger(flow_run).info("Worker %r looks after %s from here on", self.name, handle)
        if status is not None:
            status = await self._follow(runner, flow_run.id, handle)
        await self._report(flow_run.id, handle, status)

    async def _start_again(self, runner: Runner, flow_run_id: UUID) -> tuple[str, AppStatus | None] | None:
        """Submit a flow run whose worker died around the submit: what was submitted is found by its id."""
        flow_run = await self.client.read_flow_run(flow_run_id)
        if flow_run.infrastructure_pid or flow_run.state is None or flow_run.state.type is not StateType.PENDING:
            return None
        try:
            configuration = await self.job_configuration.resolve_for_flow_run(
                flow_run,
                client=self.client,
                work_pool=copy.deepcopy(self.work_pool),
                worker_name=self.name,
                worker_id=self.backend_id,
            )
            handle = await asyncio.to_thread(_start, runner, flow_run, configuration, self._logger.info, frozenset())
        except (ValueError, PluginError) as exc:  # a person must mend something
            message = f"Failed to submit flow run to infrastructure: {type(exc).__name__}: {exc}"
            await self._propose_crashed_state(flow_run, message)
            return None
        await self.client.update_flow_run(flow_run_id=flow_run.id, infrastructure_pid=handle)
        return handle, await asyncio.to_thread(runner.status, handle)

    async def _report(self, flow_run_id: UUID, handle: str, status: AppStatus | None) -> None:
        if await self._was_cancelled(flow_run_id, handle):
            return
        flow_run = await self.client.read_flow_run(flow_run_id)
        if not ended(flow_run) and (status is None or _exit_status(status)):
            if status is not None:
                await asyncio.to_thread(self._tell_failure, host_runner(HOST), flow_run, handle, status)
            how = "is lost" if status is None else f"ended: {status.summary()}"
            await self._propose_crashed_state(flow_run, f"The flow run's app {handle} {how}")

    async def _was_cancelled(self, flow_run_id: UUID, handle: str) -> bool:
        """Tell whether a flow run whose app has ended was being cancelled; it is cancelled then."""
        try:
            flow_run = await self.client.read_flow_run(flow_run_id)
        except ObjectNotFound:
            return False
        if is_cancelling(flow_run):
            message = f"The flow run was cancelled; its app is {handle}"
            await self.client.set_flow_run_state(flow_run_id, Cancelled(message=message), force=True)
            return True
        return False

    # -- following

    async def _follow(self, runner: Runner, flow_run_id: UUID, handle: str) -> AppStatus | None:
        """Wait for the end of an app; cancel it if its flow run is cancelled before it has begun."""
        asking = asyncio.create_task(self._cancel_in_queue(flow_run_id, handle))
        try:
            return await runner.wait_async(handle, patience=float("inf"))
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _cancel_in_queue(self, flow_run_id: UUID, handle: str) -> None:
        while True:
            try:
                flow_run = await self.client.read_flow_run(flow_run_id)
            except httpx.HTTPError:
                await asyncio.sleep(QUEUE_INTERVAL)
                continue
            if ended(flow_run) or flow_run.start_time is not None:
                return  # from here on, the flow run's own process hears of it
            if is_cancelling(flow_run):
                with suppress(InfrastructureNotFound, InfrastructureNotAvailable):
                    await self.kill_infrastructure(handle, AppJobConfiguration())
                return
            await asyncio.sleep(QUEUE_INTERVAL)

    async def kill_infrastructure(
        self, infrastructure_pid: str, configuration: AppJobConfiguration, grace_seconds: int = 30
    ) -> None:
        """Cancel the app of a flow run, and wait for its end.

        Raises:
            InfrastructureNotFound: if there is no such app.
            InfrastructureNotAvailable: if its scheduler cannot be reached from here, or does not end it in time.
        """
        runner = host_runner(HOST)
        try:
            await asyncio.to_thread(runner.cancel, infrastructure_pid)
            timeout = max(1.0, float(grace_seconds)) + 30.0
            await runner.wait_async(infrastructure_pid, timeout=timeout)
        except AppNotFound as exc:
            raise InfrastructureNotFound(f"there is no app {infrastructure_pid}") from exc
        except (SchedulerUnavailable, TimeoutError, ConfigError, PluginError) as exc:
            raise InfrastructureNotAvailable(str(exc)) from exc
        except TransloadError as exc:
            raise InfrastructureNotFound(str(exc)) from exc


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as exc:
        raise SpecError(f"command={command!r}: not as a shell would read it: {exc}") from exc
    if not words:
        raise SpecError(f"command={command!r}: must name a program")
    return words


def _start(
    runner: Runner,
    flow_run: FlowRun,
    configuration: AppJobConfiguration,
    log: Callable[[str], None],
    next_after: frozenset[AppState] = ENDED,
) -> str:
    """Submit the app of a flow run, unless it is there already; return its handle.

    Args:
        runner: submits.
        flow_run: what the app is to run.
        configuration: how.
        log: takes one line for people.
        next_after: ends of an app that are answered by another one.
    """
    # a flow run that is run again (a retry, a resume) is another app; submitting one twice is not
    identity = Identity(HOST, str(flow_run.id), ("flow-run", flow_run.name), str(flow_run.run_count))
    launch = Launch(
        app=configuration.to_app(),
        scheduler=configuration.scheduler,
        cfg=configuration.cfg,
        workspace=configuration.workspace,
    )
    options = ExecutionOptions(next_after=next_after)
    # what is one flow run's is in no other's reach: flow runs are submitted side by side
    submitter = runner.with_environ({**os.environ, **configuration.secret_values()})
    try:
        return Execution(submitter, launch, identity, options, log=log).start().handle
    except SpecError as exc:
        if not configuration.image and ".image" in str(exc):
            raise SpecError(f"{exc} (set the variable image of the work pool; it needs Prefect)") from exc
        raise


def _exit_status(status: AppStatus) -> int:
    if status.state is AppState.SUCCEEDED:
        return 0
    codes = [replica.exit_code for role in status.roles for replica in role.replicas]
    code = next((each for each in codes if each), None)
    if code is not None:
        return code if code > 0 else 128 - code
    return 143 if status.state is AppState.CANCELLED else 1
