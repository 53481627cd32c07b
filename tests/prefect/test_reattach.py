"""A flow run that is run again after its process died finds its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from packaging.version import Version

from transload.pipelines import host_runner

FLOW = """
import sys
from uuid import UUID
from jobs import job
from prefect import flow, task as prefect_task
from prefect.client.orchestration import get_client
from transload_prefect import app_task, run_app

gate, flow_run_id, out = sys.argv[1:4]
train = app_task(job, name="train", component_args={"gate": gate, "lines": 20})

@flow(name="again")
def work():
    first = run_app(job, component_args={"value": 10})
    several = train.map(value=[1.0, 2.0]).result()
    last = run_app("jobs:job", component_args={"value": 5})
    results = [first, *several, last]
    with open(out, "w") as file:
        file.write(" ".join(str(each.value("value")) for each in results))

if __name__ == "__main__":
    from prefect.flow_engine import run_flow
    from prefect.states import Pending

    with get_client(sync_client=True) as client:
        if flow_run_id == "new":
            flow_run = client.create_flow_run(work, state=Pending())
            print("FLOW RUN", flow_run.id, flush=True)
        else:
            flow_run = client.read_flow_run(UUID(flow_run_id))
    run_flow(work, flow_run=flow_run)
"""


def _apps() -> list[str]:
    return [each.state.name for each in host_runner("prefect").list("local")]


def _latest(host: Any) -> str | None:
    runs = host.post(
        "/flow_runs/filter", flows={"name": {"any_": ["again"]}}, limit=1, sort="START_TIME_DESC"
    )
    return runs[0]["id"] if runs else None


def test_killed_and_run_again(
    host: Any,
    gate: Path,
    script: Callable[[str], Any],
    tmp_path: Path,
    eventually: Any,
) -> None:
    """A flow run again after SIGKILL has one job each, all results, and every line.

    The last fifty lines of a job that is attached to may come twice.
    """
    out = tmp_path / "out"
    flow = script(FLOW)
    first = flow.start(str(gate), "new", str(out))
    eventually(lambda: sorted(_apps()) == ["RUNNING", "RUNNING", "SUCCEEDED"], 60)
    flow_run_id = eventually(lambda: _latest(host), 60)

    def lines() -> list[str]:
        return [line["message"] for line in host.logs(flow_run_id) if " line " in line["message"]]

    eventually(lambda: len(lines()) >= 40, 60)
    first.kill()
    first.wait(timeout=10)
    assert sorted(_apps()) == ["RUNNING", "RUNNING", "SUCCEEDED"]
    second = flow.start(str(gate), flow_run_id, str(out))
    eventually(lambda: any("attached to" in line["message"] for line in host.logs(flow_run_id)), 60)
    gate.touch()
    eventually(lambda: second.poll() is not None, 60)
    assert second.returncode == 0, flow.log.read_text()[-3000:]
    assert out.read_text() == "10.0 1.0 2.0 5.0"
    assert _apps() == ["SUCCEEDED"] * 4
    expected = {f"main/0 line {n}." for n in range(21)}
    eventually(lambda: min(Counter(lines())[each] for each in expected) >= 2, 30)
    counts = Counter(lines())
    assert max(counts.values()) <= 4, counts
    assert set(counts) == expected


@pytest.mark.skipif(
    Version(version("prefect")) < Version("3.9"), reason="Prefect 3.8 notices no suspension"
)
def test_suspended_and_resumed(
    host: Any, gate: Path, script: Callable[[str], Any], tmp_path: Path, eventually: Any
) -> None:
    """A flow run that is suspended while its jobs run ends its process, and finds them when resumed.

    Prefect notices this for the run of a deployment only. Another process stands for its worker.
    """
    out = tmp_path / "out"
    flow = script(FLOW.replace(*DEPLOYED))
    first = flow.start(str(gate), "new", str(out))
    eventually(lambda: sorted(_apps()) == ["RUNNING", "RUNNING", "SUCCEEDED"], 60)
    flow_run_id = eventually(lambda: _latest(host), 60)
    suspended = {"type": "PAUSED", "name": "Suspended", "state_details": {"pause_reschedule": True}}
    host.post(f"/flow_runs/{flow_run_id}/set_state", state=suspended, force=True)
    eventually(lambda: first.poll() is not None, 60)
    assert host.flow_run(flow_run_id)["state_name"] == "Suspended"
    assert sorted(_apps()) == ["RUNNING", "RUNNING", "SUCCEEDED"]
    host.post(f"/flow_runs/{flow_run_id}/set_state", state={"type": "PENDING"}, force=True)
    second = flow.start(str(gate), flow_run_id, str(out))
    eventually(lambda: any("attached to" in line["message"] for line in host.logs(flow_run_id)), 60)
    gate.touch()
    eventually(lambda: second.poll() is not None, 60)
    assert second.returncode == 0, flow.log.read_text()[-3000:]
    assert _apps() == ["SUCCEEDED"] * 4


def test_tasks_of_a_users_own_run_again(
    host: Any, gate: Path, script: Callable[[str], Any], tmp_path: Path, eventually: Any
) -> None:
    """Three mapped tasks that call `run_app` have three jobs, all attached to after SIGKILL."""
    out = tmp_path / "out"
    flow = script(FLOW.replace("first = run", OWN + "    first = run"))
    first = flow.start(str(gate), "new", str(out))
    eventually(lambda: _apps() == ["RUNNING"] * 3, 60)
    flow_run_id = eventually(lambda: _latest(host), 60)
    first.kill()
    first.wait(timeout=10)
    second = flow.start(str(gate), flow_run_id, str(out))

    def attached() -> set[str]:
        lines = [each["message"] for each in host.logs(flow_run_id)]
        return {line.split()[2] for line in lines if line.startswith("attached to")}

    eventually(lambda: len(attached()) == 3, 60)
    assert _apps() == ["RUNNING"] * 3
    gate.touch()
    eventually(lambda: second.poll() is not None, 60)
    assert second.returncode == 0, flow.log.read_text()[-3000:]
    assert _apps() == ["SUCCEEDED"] * 7


BY_DEPLOYMENT = (
    "create_flow_run_from_deployment(client.create_deployment(client.create_flow(work), 'again'), "
)
DEPLOYED = ("create_flow_run(work, ", BY_DEPLOYMENT)

OWN = """@prefect_task
    def own(value):
        return run_app(job, component_args={"value": value, "gate": gate}).value("value")

    assert own.map([1.0, 1.0, 2.0]).result() == [1.0, 1.0, 2.0]
"""


def test_flow_retry_finds_its_apps(host: Any) -> None:
    """A retry of the flow in the same process collects what succeeded, also what ordinary tasks
    started.
    """
    from jobs import job
    from prefect import flow
    from prefect import task as ordinary

    from transload_prefect import app_task, run_app

    name = f"retry-{uuid4().hex[:6]}"
    task = app_task(job, name=name, persist_result=False)
    seen: list[list[str]] = []

    @ordinary
    def outer() -> list[str]:
        return [
            run_app(job, component_args={"value": 3}).handle,
            run_app(job, component_args={"value": 4}).handle,
        ]

    @flow(retries=1)
    def work() -> None:
        handles = [task(value=value).handle for value in (1.0, 2.0)]
        handles += [*outer(), *outer.submit().result()]
        seen.append(handles)
        if len(seen) == 1:
            raise RuntimeError("once")

    work()
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 6
    assert len(_apps()) == 6


UNREAD = """
import os
import sys
from jobs import job
from prefect import flow
from transload_prefect import app_task

reader, writer = os.pipe()
for number in (1, 2):
    os.dup2(writer, number)
os.close(writer)

@flow(name="unread")
def work():
    os.close(reader)  # whoever read what this process writes was killed
    app_task(job, name="train", component_args={"gate": sys.argv[1], "lines": 3})()

if __name__ == "__main__":
    work()
    open(sys.argv[2], "w").close()
"""


def test_nobody_reads_what_the_flow_writes(
    host: Any, gate: Path, script: Callable[[str], Any], tmp_path: Path, eventually: Any
) -> None:
    """Jobs of flow runs whose output pipe broke go on, and all lines reach the server."""
    process = script(UNREAD).start(str(gate), str(out := tmp_path / "out"))

    def lines() -> set[str]:
        runs = host.post("/flow_runs/filter", flows={"name": {"any_": ["unread"]}}, limit=1)
        return {each["message"] for each in (host.logs(runs[0]["id"]) if runs else [])}

    eventually(lambda: "main/0 line 2." in lines() or process.poll() is not None, 60)
    assert _apps() == ["RUNNING"]
    gate.touch()
    # 120: at its end Python could not write what it still held for the broken pipe
    assert process.wait(timeout=60) in (0, 120)
    assert out.exists()
    assert _apps() == ["SUCCEEDED"] and {f"main/0 line {n}." for n in range(4)} <= lines()


AGAIN = """
import sys
from uuid import UUID
from jobs import job
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.transactions import transaction
from transload_prefect import app_task

gate, flow_run_id = sys.argv[1:]
undone = app_task(job, name="undone")
fresh = app_task(job, name="fresh", component_args={"gate": gate}, refresh_cache=True)

@flow(name="undone-and-fresh")
def work():
    try:
        with transaction():
            undone()
            if flow_run_id == "new":
                raise RuntimeError("roll back")
    except RuntimeError:
        pass
    fresh()

if __name__ == "__main__":
    from prefect.flow_engine import run_flow
    from prefect.states import Pending

    with get_client(sync_client=True) as client:
        if flow_run_id == "new":
            flow_run = client.create_flow_run(work, state=Pending())
            print("FLOW RUN", flow_run.id, flush=True)
        else:
            flow_run = client.read_flow_run(UUID(flow_run_id))
    run_flow(work, flow_run=flow_run)
"""


def test_a_killed_flow_finds_what_runs_and_repeats_what_was_rolled_back(
    host: Any, gate: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """Another process of the flow run reattaches to a running job of ``refresh_cache``.

    It knows of the rollback.
    """
    flow = script(AGAIN)
    first = flow.start(str(gate), "new")
    eventually(lambda: sorted(_apps()) == ["RUNNING", "SUCCEEDED"], 60)
    first.kill()
    first.wait(timeout=10)
    flow_run_id = flow.log.read_text().partition("FLOW RUN ")[2].split()[0]
    second = flow.start(str(gate), flow_run_id)
    eventually(lambda: sorted(_apps()) == ["RUNNING", "SUCCEEDED", "SUCCEEDED"], 60)
    eventually(lambda: any("attached to" in line["message"] for line in host.logs(flow_run_id)), 60)
    gate.touch()
    eventually(lambda: second.poll() is not None, 60)
    assert second.returncode == 0, flow.log.read_text()[-3000:]
    assert _apps() == ["SUCCEEDED"] * 3
