"""The worker type ``transload``: flow runs as apps on any scheduler."""

from __future__ import annotations

import asyncio
import os
import shlex
from typing import TYPE_CHECKING, Any, Final

import anyio.abc
from prefect.exceptions import InfrastructureNotAvailable, InfrastructureNotFound
from prefect.utilities.processutils import get_sys_executable
from prefect.workers.base import BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult
from pydantic import Field

from transload import IMAGE
from transload.errors import AppNotFound, SchedulerUnavailable, TransloadError
from transload.pipelines import app_id_for, get_poller, host_runner
from transload.specs import AppDef, AppState, Resource, Role
from transload_prefect.run import HOST

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

    from transload.runner import Runner
    from transload.specs import AppStatus

SECRET: Final = ("PREFECT_API_KEY", "PREFECT_API_AUTH_STRING")
"""What Prefect hands to flow runs and must not be written down with the app."""

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
        words = shlex.split(self.command or self._base_flow_run_command())
        if words[:1] == ["prefect"] and self.image is None:
            # on this machine: the worker's own Prefect, wherever PATH leads
            words = [*shlex.split(get_sys_executable()), "-m", *words]
        env = {name: value for name, value in self.env.items() if value is not None and name not in SECRET}
        role = Role(
            name="flow",
            image=self.image or IMAGE,
            entrypoint=words[0],
            args=words[1:],
            env=env,
            secrets={name: f"env:{name}" for name in SECRET if self.env.get(name)},
            max_retries=self.max_retries,
            resource=Resource(cpu=self.cpu, gpu=self.gpu, memMB=self.mem_mb),
        )
        return AppDef(name="prefect-flow-run", roles=[role], metadata=dict(self.labels), timeout=self.timeout)

    def publish_secrets(self) -> None:
        """Put the secrets, which may come from a profile, where the submit reads them: this process's environment."""
        for name in SECRET:
            value = self.env.get(name)
            if value:
                os.environ[name] = value


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

    The app outlives the worker: a worker that is started again leaves it alone, and Prefect hears of its end from the
    flow run itself.
    """

    type = "transload"
    job_configuration = AppJobConfiguration
    job_configuration_variables = AppVariables
    _description = "Run flow runs as transload apps: on this machine, on Slurm, on Kubernetes, wherever a scheduler is."
    _display_name = "Transload"

    async def run(
        self,
        flow_run: FlowRun,
        configuration: AppJobConfiguration,
        task_status: anyio.abc.TaskStatus[Any] | None = None,
    ) -> AppWorkerResult:
        """Submit a flow run as an app, and wait for its end.

        Raises:
            TransloadError: if it was not taken, or is lost.
        """
        runner = host_runner(HOST)
        handle = await asyncio.to_thread(_submit, runner, flow_run, configuration)
        self._logger.info("flow run %s is %s", flow_run.name, handle)
        if task_status is not None:
            task_status.started(handle)
        status = await get_poller().wait_for_async(runner, handle, patience=float("inf"))
        if status is None:
            raise TransloadError(f"{handle} is lost: it was deleted, or its scheduler lost its state")
        return AppWorkerResult(identifier=handle, status_code=_exit_status(status))

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
            await get_poller().wait_for_async(runner, infrastructure_pid, timeout=timeout)
        except AppNotFound as exc:
            raise InfrastructureNotFound(f"there is no app {infrastructure_pid}") from exc
        except (SchedulerUnavailable, TimeoutError) as exc:
            raise InfrastructureNotAvailable(str(exc)) from exc
        except TransloadError as exc:
            raise InfrastructureNotFound(str(exc)) from exc


def _submit(runner: Runner, flow_run: FlowRun, configuration: AppJobConfiguration) -> str:
    configuration.publish_secrets()
    # a flow run that is run again (a retry, a resume) is another app; submitting one twice is not
    app_id = app_id_for(HOST, str(flow_run.id), ("flow-run", flow_run.name), str(flow_run.run_count), 0)
    return runner.run(
        configuration.to_app(),
        configuration.scheduler,
        configuration.cfg,
        configuration.workspace,
        app_id=app_id,
    )


def _exit_status(status: AppStatus) -> int:
    if status.state is AppState.SUCCEEDED:
        return 0
    codes = [replica.exit_code for role in status.roles for replica in role.replicas]
    code = next((each for each in codes if each), None)
    if code is not None:
        return code if code > 0 else 128 - code
    return 143 if status.state is AppState.CANCELLED else 1
