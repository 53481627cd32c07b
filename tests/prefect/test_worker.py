"""The worker type: flow runs of a deployment as apps of the local scheduler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from transload.pipelines import host_runner

FLOW = """
import os, sys, time
from prefect import flow

@flow(log_prints=True)
def remote(gate: str = ""):
    print("in app", os.environ["TRANSLOAD_APP_ID"])
    while gate and not os.path.exists(gate):
        time.sleep(0.05)
    return 1

if __name__ == "__main__":
    pool, here = sys.argv[1:3]
    remote.from_source(source=here, entrypoint="script.py:remote").deploy(
        name=pool, work_pool_name=pool, build=False, push=False, job_variables={"scheduler": "local"}
    )
"""


def _apps() -> list[Any]:
    return host_runner("prefect").list("local")


def _deploy(host: Any, made: Any, eventually: Any) -> tuple[str, str]:
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    template = TransloadWorker.get_default_base_job_template()
    host.post("/work_pools/", name=pool, type="transload", base_job_template=template)
    process = made.start(pool, str(made.path.parent))
    eventually(lambda: process.poll() is not None, 60)
    assert process.returncode == 0, made.log.read_text()[-3000:]
    made.start(
        sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "transload",
        PREFECT_WORKER_QUERY_SECONDS="1", PREFECT_WORKER_PREFETCH_SECONDS="1",
    )  # fmt: skip
    found = host.post("/deployments/filter", deployments={"name": {"any_": [pool]}})
    return pool, found[0]["id"]


@pytest.mark.slow
@pytest.mark.leaves_processes
def test_worker_end_to_end(host: Any, gate: Path, script: Callable[[str], Any], eventually: Any) -> None:
    """A work pool, a worker, a flow run launched through the local scheduler; another one is cancelled."""
    made = script(FLOW)
    _, deployment = _deploy(host, made, eventually)
    run = host.post(f"/deployments/{deployment}/create_flow_run", parameters={})
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "COMPLETED", 120, made.log.read_text()[-2000:])
    pid = host.flow_run(run["id"])["infrastructure_pid"]
    assert pid.startswith("local://prefect/prefect-")
    eventually(lambda: any("in app" in line["message"] for line in host.logs(run["id"])), 10)
    eventually(lambda: [each.state.name for each in _apps()] == ["SUCCEEDED"], 20)

    run = host.post(f"/deployments/{deployment}/create_flow_run", parameters={"gate": str(gate)})
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "RUNNING", 60)
    host.cancel(run["id"])
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "CANCELLED", 60)
    eventually(lambda: all(each.state.name != "RUNNING" for each in _apps()), 60)


async def test_kill_infrastructure(host: Any) -> None:
    """``kill_infrastructure`` cancels the app; one that is not there is said to be not there."""
    from prefect.exceptions import InfrastructureNotFound

    from transload.specs import AppDef, Role
    from transload_prefect.worker import AppJobConfiguration, TransloadWorker

    runner = host_runner("prefect")
    handle = runner.run(AppDef("sleep", [Role("r", "", entrypoint="sleep", args=["100"])]), "local")
    worker = TransloadWorker(work_pool_name="none")
    await worker.kill_infrastructure(handle, AppJobConfiguration(), 5)
    status = runner.status(handle)
    assert status is not None and status.state.name == "CANCELLED"
    with pytest.raises(InfrastructureNotFound):
        await worker.kill_infrastructure("local://prefect/absent", AppJobConfiguration(), 5)


def test_configuration_becomes_an_app() -> None:
    """Command, environment and resources of a job configuration are those of the app; keys are references."""
    from transload_prefect.worker import AppJobConfiguration

    made = AppJobConfiguration(
        command="echo 'a b' c", env={"X": "1", "PREFECT_API_KEY": "hunter2"}, image="img", cpu=2, gpu=1, mem_mb=512
    )
    app = made.to_app()
    role = app.roles[0]
    assert (role.entrypoint, role.args, role.image) == ("echo", ["a b", "c"], "img")
    assert (role.resource.cpu, role.resource.gpu, role.resource.memMB) == (2, 1, 512)
    assert role.env == {"X": "1"}
    assert role.secrets == {"PREFECT_API_KEY": "env:PREFECT_API_KEY"}
    assert "hunter2" not in app.to_json()
