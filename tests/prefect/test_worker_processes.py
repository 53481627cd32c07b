"""Workers that are killed run a deployment's flow runs as jobs of the local scheduler."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from transload.pipelines import host_runner


def _apps() -> list[Any]:
    return host_runner("prefect").list("local")


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
def test_worker_end_to_end(
    host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """A worker runs a flow run of its work pool by the local scheduler.

    Another one is cancelled.
    """
    made = script(FLOW)
    pool, deployment = _deploy(host, made, eventually)
    _worker(made, pool, "one")
    run = host.post(f"/deployments/{deployment}/create_flow_run", parameters={})
    eventually(
        lambda: host.flow_run(run["id"])["state_type"] == "COMPLETED",
        180,
        made.log.read_text()[-2000:],
    )
    pid = host.flow_run(run["id"])["infrastructure_pid"]
    assert pid.startswith("local://prefect/prefect-")
    eventually(lambda: any("in app" in line["message"] for line in host.logs(run["id"])), 180)
    eventually(lambda: [each.state.name for each in _apps()] == ["SUCCEEDED"], 180)

    run = host.post(f"/deployments/{deployment}/create_flow_run", parameters={"gate": str(gate)})
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "RUNNING", 180)
    host.cancel(run["id"])
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "CANCELLED", 180)
    eventually(
        lambda: sorted(each.state.name for each in _apps()) == ["CANCELLED", "SUCCEEDED"], 180
    )


@pytest.mark.slow
@pytest.mark.leaves_processes
def test_a_worker_goes_on_for_one_that_was_killed(
    host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """After SIGKILL of a worker, the next of its name looks after its jobs, and starts none."""
    made = script(FLOW)
    pool, deployment = _deploy(host, made, eventually)
    first = _worker(made, pool, "one")
    runs = [
        host.post(f"/deployments/{deployment}/create_flow_run", parameters={"gate": str(gate)})[
            "id"
        ]
        for _ in range(3)
    ]
    eventually(lambda: all(host.flow_run(each)["state_type"] == "RUNNING" for each in runs), 180)
    handles = [host.flow_run(each)["infrastructure_pid"] for each in runs]
    first.kill()
    first.wait(timeout=10)
    _worker(made, pool, "one")
    for each in runs:
        eventually(
            lambda run=each: any("looks after" in line["message"] for line in host.logs(run)), 180
        )
    host.cancel(runs[0])
    eventually(lambda: host.flow_run(runs[0])["state_type"] == "CANCELLED", 180)
    # killed so that its process can tell nobody. The worker that saw it start is gone
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

STRIKES = {
    "outer, SIGKILL": (signal.SIGKILL, 0),
    "inner, SIGKILL": (signal.SIGKILL, 1),
    "both, SIGKILL": (signal.SIGKILL, 0, 1),
    "outer, SIGTERM": (signal.SIGTERM, 0),
    "inner, SIGTERM": (signal.SIGTERM, 1),
    "both, SIGTERM": (signal.SIGTERM, 1, 0),
}
"""Signals, and the processes of a flow run that get them, the job's own or the flow's."""


@pytest.mark.slow
@pytest.mark.leaves_processes
@pytest.mark.timeout(900)
def test_ends_that_nobody_asked_for(
    host: Any, gate: Path, transload_home: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """A "retry" finds the job of a flow run whose processes died. A cancel ends it."""
    made = script(WITH_AN_APP + FLOW[FLOW.index("\nif __name__") :])
    pool, deployment = _deploy(host, made, eventually)
    _worker(made, pool, "one")
    gates = {
        name: gate.with_name(f"gate-{number}")
        for number, name in enumerate([*STRIKES, "cancelled"])
    }
    runs = {}
    for name, own in gates.items():
        parameters = {"gate": str(own), "home": str(transload_home)}
        runs[name] = host.post(f"/deployments/{deployment}/create_flow_run", parameters=parameters)[
            "id"
        ]
    jobs = {}
    for name, run in runs.items():
        line = eventually(lambda run=run: _submitted(host, run), 300, name)
        jobs[name] = line
    runner = host_runner("prefect")
    eventually(
        lambda: all(runner.status(each).state.name == "RUNNING" for each in jobs.values()), 60
    )
    first = {name: host.flow_run(run)["infrastructure_pid"] for name, run in runs.items()}
    for name, (number, *which) in STRIKES.items():
        pids = Path(f"{gates[name]}.pid").read_text().split()
        for each in which:
            with suppress(ProcessLookupError):
                os.kill(int(pids[each]), number)
    host.cancel(runs["cancelled"])
    eventually(lambda: runner.status(jobs["cancelled"]).state.name == "CANCELLED", 60)
    eventually(lambda: host.flow_run(runs["cancelled"])["state_type"] == "CANCELLED", 180)
    for name in STRIKES:
        eventually(
            lambda name=name: host.flow_run(runs[name])["state_type"] in ("CRASHED", "FAILED"),
            180,
            name,
        )
        assert runner.status(jobs[name]).state.name == "RUNNING", name
    for name in STRIKES:
        again = {"type": "SCHEDULED", "name": "AwaitingRetry"}
        host.post(f"/flow_runs/{runs[name]}/set_state", state=again, force=True)
    for name in STRIKES:
        eventually(
            lambda name=name: _says(host, runs[name], f"attached to {jobs[name]}"), 300, name
        )
        gates[name].touch()
    for name in STRIKES:
        eventually(
            lambda name=name: host.flow_run(runs[name])["state_type"] == "COMPLETED", 180, name
        )
    eventually(lambda: all(each.state.name != "RUNNING" for each in _apps()), 180)
    states = {each.app_handle: each.state.name for each in _apps()}
    own = {name: states.pop(host.flow_run(run)["infrastructure_pid"]) for name, run in runs.items()}
    assert own == {**dict.fromkeys(STRIKES, "SUCCEEDED"), "cancelled": "CANCELLED"}
    ends = {name: states.pop(handle) for name, handle in jobs.items()}
    assert ends == {**dict.fromkeys(STRIKES, "SUCCEEDED"), "cancelled": "CANCELLED"}
    struck = {name: states.pop(first[name]) for name in STRIKES}
    assert struck == dict.fromkeys(STRIKES, "FAILED"), "the jobs of the tries that were struck"
    assert not states


def _submitted(host: Any, run: str) -> str | None:
    """Return the handle of the job that a flow run has, once its progress names it."""
    shown = [str(each.get("description") or "") for each in host.artifacts(run)]
    return next(
        (text.split()[2] for text in shown if text.startswith("replicas of local://")), None
    )


def _says(host: Any, run: str, text: str) -> bool:
    return any(text in line["message"] for line in host.logs(run))


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
