"""The worker type: flow runs of a deployment as apps of the local scheduler."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
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
    """Return the name of a new work pool, and the id of a deployment of the script's flow in it."""
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    template = TransloadWorker.get_default_base_job_template()
    host.post("/work_pools/", name=pool, type="transload", base_job_template=template)
    process = made.start(pool, str(made.path.parent))
    eventually(lambda: process.poll() is not None, 180)
    assert process.returncode == 0, made.log.read_text()[-3000:]
    found = host.post("/deployments/filter", deployments={"name": {"any_": [pool]}})
    return pool, found[0]["id"]


def _worker(made: Any, pool: str, name: str) -> Any:
    return made.start(
        sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "transload", "--name", name,
        PREFECT_WORKER_QUERY_SECONDS="1", PREFECT_WORKER_PREFETCH_SECONDS="1",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.leaves_processes
def test_worker_end_to_end(host: Any, gate: Path, script: Callable[[str], Any], eventually: Any) -> None:
    """A work pool, a worker, a flow run launched through the local scheduler; another one is cancelled."""
    made = script(FLOW)
    pool, deployment = _deploy(host, made, eventually)
    _worker(made, pool, "one")
    run = host.post(f"/deployments/{deployment}/create_flow_run", parameters={})
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "COMPLETED", 180, made.log.read_text()[-2000:])
    pid = host.flow_run(run["id"])["infrastructure_pid"]
    assert pid.startswith("local://prefect/prefect-")
    eventually(lambda: any("in app" in line["message"] for line in host.logs(run["id"])), 180)
    eventually(lambda: [each.state.name for each in _apps()] == ["SUCCEEDED"], 180)

    run = host.post(f"/deployments/{deployment}/create_flow_run", parameters={"gate": str(gate)})
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "RUNNING", 180)
    host.cancel(run["id"])
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "CANCELLED", 180)
    eventually(lambda: all(each.state.name != "RUNNING" for each in _apps()), 180)


@pytest.mark.slow
@pytest.mark.leaves_processes
def test_a_worker_goes_on_for_one_that_was_killed(
    host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """SIGKILL of the worker while apps run: the next of its name reports one killed, cancels one; no second job."""
    made = script(FLOW)
    pool, deployment = _deploy(host, made, eventually)
    first = _worker(made, pool, "one")
    runs = [
        host.post(f"/deployments/{deployment}/create_flow_run", parameters={"gate": str(gate)})["id"] for _ in range(3)
    ]
    eventually(lambda: all(host.flow_run(each)["state_type"] == "RUNNING" for each in runs), 180)
    handles = [host.flow_run(each)["infrastructure_pid"] for each in runs]
    first.kill()
    first.wait(timeout=10)
    _worker(made, pool, "one")
    for each in runs:
        eventually(lambda run=each: any("looks after" in line["message"] for line in host.logs(run)), 180)
    host.cancel(runs[0])
    eventually(lambda: host.flow_run(runs[0])["state_type"] == "CANCELLED", 180)
    # killed so that its process can tell nobody; the worker that saw it start is gone
    _kill_hard(handles[1])
    eventually(lambda: host.flow_run(runs[1])["state_type"] == "CRASHED", 180)
    assert handles[1] in host.flow_run(runs[1])["state"]["message"]
    gate.touch()
    eventually(lambda: host.flow_run(runs[2])["state_type"] == "COMPLETED", 180)
    eventually(lambda: all(each.state.name != "RUNNING" for each in _apps()), 180)
    assert sorted(each.app_handle for each in _apps()) == sorted(handles)


WITH_AN_APP = """
import os, sys
from pathlib import Path
from prefect import flow
from transload.specs import AppDef, Role
from transload_prefect import run_app

@flow
def remote(gate: str, home: str):
    os.environ["TRANSLOAD_HOME"] = home
    Path(gate + ".pid").write_text(f"{os.getppid()} {os.getpid()}")
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    run_app(AppDef("inner", [Role("r", "", entrypoint="sh", args=["-c", wait])]), scheduler="local")
"""


@pytest.mark.slow
@pytest.mark.leaves_processes
def test_a_killed_flow_run_that_is_scheduled_again(
    host: Any, gate: Path, transload_home: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """SIGKILL of a deployment's flow run, then "retry" as the interface does it: its app is attached to, one job."""
    made = script(WITH_AN_APP + FLOW[FLOW.index("\nif __name__") :])
    pool, deployment = _deploy(host, made, eventually)
    _worker(made, pool, "one")
    parameters = {"gate": str(gate), "home": str(transload_home)}
    run = host.post(f"/deployments/{deployment}/create_flow_run", parameters=parameters)["id"]
    eventually(lambda: [each.state.name for each in _apps()] == ["RUNNING"] * 2, 180)
    first = host.flow_run(run)["infrastructure_pid"]
    for pid in Path(f"{gate}.pid").read_text().split():  # the replica, then the flow's own process, which it starts
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: host.flow_run(run)["state_type"] == "CRASHED", 180)
    host.post(f"/flow_runs/{run}/set_state", state={"type": "SCHEDULED", "name": "AwaitingRetry"}, force=True)
    eventually(lambda: any("attached to" in line["message"] for line in host.logs(run)), 180)
    gate.touch()
    eventually(lambda: host.flow_run(run)["state_type"] == "COMPLETED", 180)
    eventually(lambda: all(each.state.name != "RUNNING" for each in _apps()), 180)
    second = host.flow_run(run)["infrastructure_pid"]
    states = {each.app_handle: each.state.name for each in _apps()}
    assert (states.pop(first), states.pop(second)) == ("FAILED", "SUCCEEDED")
    assert list(states.values()) == ["SUCCEEDED"]


def _kill_hard(handle: str) -> None:
    """SIGKILL the process of an app's replica."""
    app_id = handle.rpartition("/")[2].encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"TRANSLOAD_APP_ID=" + app_id in environment:
            os.kill(int(entry.name), signal.SIGKILL)


def _deployment(host: Any, pool: str, **variables: Any) -> str:
    """Return the deployment of a flow that is nowhere, in a new pool; its flow runs are a command."""
    from transload_prefect import TransloadWorker

    template = TransloadWorker.get_default_base_job_template()
    host.post("/work_pools/", name=pool, type="transload", base_job_template=template)
    flow = host.post("/flows/", name="adopted")
    deployment = host.post(
        "/deployments/", name=pool, flow_id=flow["id"], work_pool_name=pool, entrypoint="absent.py:absent",
        job_variables={"scheduler": "local", "command": "sleep 100", **variables},
    )  # fmt: skip
    return str(deployment["id"])


def _flow_run_of(host: Any, pool: str, worker: str, **variables: Any) -> str:
    """Return a flow run of a pool that a worker has submitted; nothing runs."""
    deployment = _deployment(host, pool, **variables)
    run = host.post(f"/deployments/{deployment}/create_flow_run", state={"type": "PENDING"})
    host.patch(f"/flow_runs/{run['id']}/labels", **{"prefect.worker.name": worker})
    return str(run["id"])


def _set_handle(host: Any, run: str, handle: str) -> None:
    host.patch(f"/flow_runs/{run}", infrastructure_pid=handle)


async def _soon(condition: Callable[[], Any], seconds: float = 100) -> Any:
    """Wait for a condition without holding up the event loop."""
    deadline = time.monotonic() + seconds
    while not (value := await asyncio.to_thread(condition)):
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.05)
    return value


async def test_a_flow_run_whose_worker_died_before_the_submit(host: Any) -> None:
    """It is submitted once; cancelled while its process has not begun, its app is cancelled."""
    from transload_prefect import worker as module

    pool = f"pool-{uuid4().hex[:6]}"
    run = _flow_run_of(host, pool, "one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "QUEUE_INTERVAL", 0.1)
        async with module.TransloadWorker(work_pool_name=pool, name="one") as worker:
            handle = await _soon(lambda: host.flow_run(run)["infrastructure_pid"])
            for _ in range(2):
                await worker.sync_with_backend()
            await asyncio.to_thread(host.cancel, run)
            await _soon(lambda: host.flow_run(run)["state_type"] == "CANCELLED")
    assert [(each.app_handle, each.state.name) for each in _apps()] == [(handle, "CANCELLED")]


async def test_a_flow_run_whose_worker_died_after_the_submit(host: Any, gate: Path) -> None:
    """Its app is found; that it fails without a word of the flow run's own is said; no second app."""
    from transload.specs import AppDef, Role
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    run = _flow_run_of(host, pool, "one")
    command = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 9"
    app = AppDef("flow-run", [Role("flow", "", entrypoint="sh", args=["-c", command])])
    handle = host_runner("prefect").run(app, "local")
    _set_handle(host, run, handle)
    async with TransloadWorker(work_pool_name=pool, name="one"):
        await _soon(lambda: any("looks after" in line["message"] for line in host.logs(run)))
        gate.touch()
        await _soon(lambda: host.flow_run(run)["state_type"] == "CRASHED")
    assert "exit code 9" in host.flow_run(run)["state"]["message"]
    assert len(_apps()) == 1


async def test_what_is_looked_after_counts_against_the_limit(host: Any, gate: Path) -> None:
    """A worker with a limit of one takes no new flow run as long as it looks after one of an earlier worker."""
    from transload.specs import AppDef, Role
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    run = _flow_run_of(host, pool, "one")
    command = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    app = AppDef("flow-run", [Role("flow", "", entrypoint="sh", args=["-c", command])])
    _set_handle(host, run, host_runner("prefect").run(app, "local"))
    deployment = host.flow_run(run)["deployment_id"]
    new = host.post(f"/deployments/{deployment}/create_flow_run", job_variables={"command": "true"})["id"]
    async with TransloadWorker(work_pool_name=pool, name="one", limit=1) as worker:
        await _soon(lambda: any("looks after" in line["message"] for line in host.logs(run)))
        assert await worker.get_and_submit_flow_runs() == []
        gate.touch()
        await _soon(lambda: not worker._followed)
        assert [str(each.id) for each in await worker.get_and_submit_flow_runs()] == [new]
    assert [each.state.name for each in _apps()] == ["SUCCEEDED"] * 2


async def test_an_app_that_ended_before_its_flow_run_began(host: Any) -> None:
    """Scheduled again, the flow run gets another app, not the end of the first one."""
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    deployment = _deployment(host, pool, command="false")
    run = host.post(f"/deployments/{deployment}/create_flow_run")["id"]
    handles: set[str | None] = {None}

    def ended() -> bool:
        found = host.flow_run(run)
        return found["state_type"] == "CRASHED" and found["infrastructure_pid"] not in handles

    async with TransloadWorker(work_pool_name=pool, name="one") as worker:
        for _ in range(2):
            await worker.get_and_submit_flow_runs()
            await _soon(ended)
            await _soon(lambda: not worker._submitting_flow_run_ids)
            handles.add(host.flow_run(run)["infrastructure_pid"])
            host.post(f"/flow_runs/{run}/set_state", state={"type": "SCHEDULED"}, force=True)
    handles.remove(None)
    assert sorted(each.app_handle for each in _apps()) == sorted(handles)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"command": "echo 'a"}, 'command="echo \'a": not as a shell would read it'),
        ({"scheduler": "slurn"}, "slurn"),
        ({"scheduler": "local", "cfg": {"partitoin": "gpu"}}, "partitoin"),
        ({"mem_mb": -7}, "memMB=-7"),
    ],
)
@pytest.mark.parametrize("died", [False, True])
async def test_wrong_variables_of_a_work_pool(host: Any, died: bool, variables: dict[str, Any], words: str) -> None:
    """The flow run is Crashed and says why, also where an earlier worker died before it saw that; the worker lives."""
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    if died:
        run = _flow_run_of(host, pool, "one", **variables)
    else:
        run = host.post(f"/deployments/{_deployment(host, pool, **variables)}/create_flow_run")["id"]
    async with TransloadWorker(work_pool_name=pool, name="one") as worker:
        await worker.get_and_submit_flow_runs()
        await _soon(lambda: host.flow_run(run)["state_type"] == "CRASHED")
        await worker.sync_with_backend()
    assert words in host.flow_run(run)["state"]["message"]
    assert _apps() == []


async def test_more_flow_runs_than_a_page(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All open flow runs of a pool are looked at, and all of its workers."""
    from prefect.client.orchestration import get_client

    from transload_prefect import adopt

    pool = f"pool-{uuid4().hex[:6]}"
    run = _flow_run_of(host, pool, "gone")
    deployment = host.flow_run(run)["deployment_id"]
    others = [
        host.post(f"/deployments/{deployment}/create_flow_run", state={"type": "PENDING"})["id"] for _ in range(2)
    ]
    for each, name in zip(others, ("gone", "living"), strict=True):
        host.patch(f"/flow_runs/{each}/labels", **{"prefect.worker.name": name})
    for name in ("a", "living", "z"):
        host.post(f"/work_pools/{pool}/workers/heartbeat", name=name, heartbeat_interval_seconds=300)
    monkeypatch.setattr(adopt, "PAGE", 1)
    async with get_client() as client:
        found = await adopt.orphans(client, pool, "one")
    assert {str(each.id) for each in found} == {run, others[0]}


@pytest.mark.slow
async def test_a_worker_that_prefect_takes_for_dead(host: Any) -> None:
    """Flow runs of a worker of another name are left alone until Prefect shows it as offline."""
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    run = _flow_run_of(host, pool, "other")
    host.post(f"/work_pools/{pool}/workers/heartbeat", name="other", heartbeat_interval_seconds=1)

    def status() -> str:
        workers = host.post(f"/work_pools/{pool}/workers/filter")
        return str(next(each["status"] for each in workers if each["name"] == "other"))

    async with TransloadWorker(work_pool_name=pool, name="one") as worker:
        assert status() == "OFFLINE" or run not in {str(each) for each in worker._followed}
        await _soon(lambda: status() == "OFFLINE", 120)
        await worker.sync_with_backend()
        handle = await _soon(lambda: host.flow_run(run)["infrastructure_pid"])
        await worker.kill_infrastructure(handle, worker.job_configuration(), 5)
        await _soon(lambda: host.flow_run(run)["state_type"] == "CRASHED")
    assert [each.app_handle for each in _apps()] == [handle]


async def test_what_others_look_after_is_left_alone(host: Any) -> None:
    """Flow runs of a living worker, apps that cannot be seen from here, and other infrastructure are not touched."""
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    run = _flow_run_of(host, pool, "other")
    elsewhere = host.post(
        f"/deployments/{host.flow_run(run)['deployment_id']}/create_flow_run", state={"type": "PENDING"}
    )
    host.patch(f"/flow_runs/{elsewhere['id']}/labels", **{"prefect.worker.name": "one"})
    _set_handle(host, elsewhere["id"], "local://prefect/not-of-this-machine")
    host.post(f"/work_pools/{pool}/workers/heartbeat", name="other", heartbeat_interval_seconds=300)
    async with TransloadWorker(work_pool_name=pool, name="one") as worker:
        await worker.sync_with_backend()
        await _soon(lambda: not worker._followed)
        _set_handle(host, elsewhere["id"], "4711")
        await worker.sync_with_backend()
        await _soon(lambda: not worker._followed)
    assert {host.flow_run(each)["state_type"] for each in (run, elsewhere["id"])} == {"PENDING"}
    assert _apps() == []


async def test_kill_infrastructure(host: Any) -> None:
    """``kill_infrastructure`` cancels the app; one that is not there, or cannot be reached, is said to be so."""
    from prefect.exceptions import InfrastructureNotAvailable, InfrastructureNotFound

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
    with pytest.raises(InfrastructureNotAvailable, match="nosuch"):  # not cancelled: it may run on
        await worker.kill_infrastructure("nosuch://prefect/absent", AppJobConfiguration(), 5)


@pytest.mark.parametrize("command", ["echo 'a", "  "])
def test_a_command_that_is_none(command: str) -> None:
    """A command that a shell would not read, or that names no program, is refused by name."""
    from transload.errors import SpecError
    from transload_prefect.worker import AppJobConfiguration

    with pytest.raises(SpecError, match="command="):
        AppJobConfiguration(command=command).to_app()


def test_configuration_becomes_an_app() -> None:
    """Command, environment and resources of a job configuration are those of the app; keys are references."""
    from transload_prefect.worker import AppJobConfiguration

    keys = ("PREFECT_API_KEY", "PREFECT_CLIENT_CUSTOM_HEADERS", "PREFECT_SERVER_DATABASE_CONNECTION_URL")
    env = {"X": "1", **dict.fromkeys(keys, "hunter2")}
    made = AppJobConfiguration(command="echo 'a b' c", env=env, image="img", cpu=2, gpu=1, mem_mb=512)
    app = made.to_app()
    role = app.roles[0]
    assert (role.entrypoint, role.args, role.image) == ("echo", ["a b", "c"], "img")
    assert (role.resource.cpu, role.resource.gpu, role.resource.memMB) == (2, 1, 512)
    assert role.env == {"X": "1"}
    assert role.secrets == {key: f"env:{key}" for key in keys}
    assert "hunter2" not in app.to_json()
