"""Start processes that have imported orchestrator and engine already.

So a kill hits the life of a step, and not its imports.
"""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.forkserver
import os
from collections.abc import Mapping
from typing import Any

from transload.plugins import load_attribute
from transload_testing import ChildDriver
from transload_testing.adapter_driver import ChildJob, HostJob

FORKS = multiprocessing.get_context("forkserver")
IMPORTED = {
    "airflow": (
        "transload_airflow.operators",
        "transload_airflow.triggers",
        "airflow.providers.common.compat.sdk",
    ),
    "execution_api": ("airflow.api_fastapi.execution_api.routes",),
    "ax": (
        "transload_ax.jobs",
        "transload_ax.trials",
        "transload_ax.units",
        "transload_ax.storage",
        "ax.orchestration.orchestrator",
        "ax.storage.sqa_store.db",
    ),
    "kfp": ("transload_kfp.launcher", "transload_kfp.component", "transload_kfp.task"),
    "prefect": ("transload_prefect.step",),
    "local": ("transload.schedulers.local",),
    "docker": ("transload_docker.scheduler", "docker"),
    "kubernetes": ("transload_kubernetes.scheduler", "kubernetes.client"),
    "slurm": ("transload_slurm.scheduler",),
    "hpc": ("transload_slurm.scheduler", "transload_slurm.remote"),
}

AIRFLOW_TASKS = (*IMPORTED["airflow"], "airflow.sdk.execution_time.task_runner")
"""What the processes of Airflow's tasks need."""


@functools.cache
def warm_up(*names: str) -> None:
    """Have the server from which processes are forked import what a host (and an engine) needs,
    before its first.
    """
    if multiprocessing.forkserver._forkserver._forkserver_pid is not None:  # type: ignore[attr-defined]
        return
    modules = [module for name in names for module in IMPORTED[name.removesuffix("_defaults")]]
    FORKS.set_forkserver_preload(
        ["transload.pipelines", "transload.runner.api", "transload_testing", *modules]
    )
    home = os.environ.pop(
        "TRANSLOAD_HOME", None
    )  # the server outlives a test, whose folder's processes are ended
    multiprocessing.forkserver.ensure_running()
    os.environ |= {"TRANSLOAD_HOME": home} if home else {}


class Forked:
    """A process of that server, with the face of ``subprocess.Popen``."""

    def __init__(self, process: Any) -> None:
        self._process = process

    def poll(self) -> int | None:
        """Return the exit code, or None."""
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is gone."""
        self._process.join(timeout)

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        try:
            os.kill(self._process.pid, number)
        except ProcessLookupError:
            return  # it has just ended by itself


class Warm(ChildDriver):
    """Runs the entry in a forked process."""

    def request(self) -> dict[str, Any]:
        """Return what the next process is given."""
        return {**self._request, "report": str(self._report(self._run))}

    def restart(self) -> None:
        """Start another process for the same unit of work."""
        self.close()
        self._run += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **self.environment, **self._environment}
        process = FORKS.Process(
            target=_child, args=(self.entry, environment, self.request()), daemon=False
        )
        process.start()
        self._process = Forked(process)  # type: ignore[assignment]


def warmed(driver: ChildDriver) -> ChildDriver:
    """Have a driver run its entry in forked processes, if it does not do so already."""
    if not isinstance(driver, Warm):
        driver.__class__ = type("Warm", (Warm, type(driver)), {})
    return driver


def _child(entry: str, environment: Mapping[str, str], request: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.setsid()
    job = HostJob(**request.pop("job"))
    load_attribute(entry)(ChildJob(job=job, **request))
