"""The worker runs flow runs as jobs of the local scheduler, and takes over earlier workers'."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from transload.errors import SpecError
from transload.pipelines import host_runner
from transload.specs import BindMount, Notice, named_resources


def _apps() -> list[Any]:
    return host_runner("prefect").list("local")


def _deployment(host: Any, pool: str, **variables: Any) -> str:
    """Return the deployment of a flow that is nowhere, in a new pool.

    Its flow runs are a command.
    """
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
    """Return a flow run of a pool that a worker has submitted. Nothing runs."""
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
    """Such a flow run is submitted once. Cancelled before its process has begun, so is its job."""
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
    """The job of such a flow run is found, without a second one, and its silent failure is said."""
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
    """A worker with a limit of one takes no new flow run as long as it looks after one of an
    earlier worker.
    """
    from transload.specs import AppDef, Role
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    run = _flow_run_of(host, pool, "one")
    command = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    app = AppDef("flow-run", [Role("flow", "", entrypoint="sh", args=["-c", command])])
    _set_handle(host, run, host_runner("prefect").run(app, "local"))
    deployment = host.flow_run(run)["deployment_id"]
    new = host.post(
        f"/deployments/{deployment}/create_flow_run", job_variables={"command": "true"}
    )["id"]
    async with TransloadWorker(work_pool_name=pool, name="one", limit=1) as worker:
        await _soon(lambda: any("looks after" in line["message"] for line in host.logs(run)))
        assert await worker.get_and_submit_flow_runs() == []
        gate.touch()
        await _soon(lambda: not worker._followed)
        assert [str(each.id) for each in await worker.get_and_submit_flow_runs()] == [new]
    assert [each.state.name for each in _apps()] == ["SUCCEEDED"] * 2


async def test_output_while_the_app_runs(host: Any, gate: Path) -> None:
    """Lines are in the flow run's log before the app ends, without those that Prefect's own logger
    sends.
    """
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    print_two = "echo 12:00:00.123 \\| INFO; echo hello"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    deployment = _deployment(host, pool, command=f'sh -c "{print_two}; {wait}; echo bye"')
    run = host.post(f"/deployments/{deployment}/create_flow_run")["id"]

    def lines() -> list[str]:
        return [each["message"] for each in host.logs(run) if each["message"].startswith("flow/0")]

    async with TransloadWorker(work_pool_name=pool, name="one") as worker:
        await worker.get_and_submit_flow_runs()
        await _soon(lambda: lines() == ["flow/0 hello"])
        gate.touch()
        await _soon(lambda: lines() == ["flow/0 hello", "flow/0 bye"])
        await _soon(lambda: not worker._submitting_flow_run_ids)


def test_what_prefect_logs_is_not_repeated() -> None:
    """Lines of Prefect and the tracebacks below them, also chained ones, are left out.

    What follows is handed on.
    """
    from transload.schedulers.api import Stream
    from transload_prefect.traces import without_prefects

    got: list[str] = []
    output = without_prefects(lambda role, replica, stream, line: got.append(line))
    text = """pip says
10:00:00.000 | ERROR   | Flow run 'x' - Encountered an exception
Traceback (most recent call last):
  File "a.py", line 1
ValueError: one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 2
KeyError: 2
a warning
  indented
10:00:01.000 | INFO    | bye
the end"""
    for line in text.splitlines():
        output("flow", 0, Stream.STDERR, line)
        if line.startswith("ValueError"):
            output("flow", 0, Stream.STDOUT, "printed meanwhile")
            output("flow", 1, Stream.STDERR, "of another replica")
    meanwhile = ["printed meanwhile", "of another replica"]
    assert got == ["pip says", *meanwhile, "a warning", "  indented", "the end"]


@pytest.mark.parametrize("stream_output", [True, False])
async def test_what_an_app_says_before_prefect_starts_in_it(host: Any, stream_output: bool) -> None:
    """The flow run's log has an early end of its job, by a failed import or no interpreter."""
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    words = "sh -c 'echo no module named prefect >&2; exit 3'"
    deployment = _deployment(host, pool, command=words, stream_output=stream_output)
    run = host.post(f"/deployments/{deployment}/create_flow_run")["id"]
    async with TransloadWorker(work_pool_name=pool, name="one") as worker:
        await worker.get_and_submit_flow_runs()
        await _soon(lambda: any("flow/0 exit code 3" in each["message"] for each in host.logs(run)))
        await _soon(lambda: not worker._submitting_flow_run_ids)
    assert "".join(each["message"] for each in host.logs(run)).count("no module named prefect") == 1


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
    ("variables", "words", "died"),
    [
        ({"scheduler": "local", "cfg": {"partitoin": "gpu"}}, "partitoin", True),
        ({"gpus": 1}, "gpus=1: no variable of the work pool: did you mean 'gpu'", False),
        ({"scheduler": "slurn"}, "slurn", False),
    ],
)
async def test_wrong_variables_of_a_work_pool(
    host: Any, variables: dict[str, Any], words: str, died: bool
) -> None:
    """The flow run is Crashed and says why, also after an earlier worker died. The worker lives."""
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    if died:
        run = _flow_run_of(host, pool, "one", **variables)
    else:
        run = host.post(f"/deployments/{_deployment(host, pool, **variables)}/create_flow_run")[
            "id"
        ]
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
        host.post(f"/deployments/{deployment}/create_flow_run", state={"type": "PENDING"})["id"]
        for _ in range(2)
    ]
    for each, name in zip(others, ("gone", "living"), strict=True):
        host.patch(f"/flow_runs/{each}/labels", **{"prefect.worker.name": name})
    for name in ("a", "living", "z"):
        host.post(
            f"/work_pools/{pool}/workers/heartbeat", name=name, heartbeat_interval_seconds=300
        )
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
    """Flow runs of a living worker, apps that cannot be seen from here, and other infrastructure
    are not touched.
    """
    from transload_prefect import TransloadWorker

    pool = f"pool-{uuid4().hex[:6]}"
    run = _flow_run_of(host, pool, "other")
    elsewhere = host.post(
        f"/deployments/{host.flow_run(run)['deployment_id']}/create_flow_run",
        state={"type": "PENDING"},
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
    """``kill_infrastructure`` cancels the job, or says that it is missing or out of reach."""
    from prefect.exceptions import InfrastructureNotAvailable, InfrastructureNotFound

    from transload.specs import AppDef, Role
    from transload_prefect import TransloadWorker
    from transload_prefect.variables import AppJobConfiguration

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
    from transload_prefect.variables import AppJobConfiguration

    with pytest.raises(SpecError, match="command="):
        AppJobConfiguration(command=command).to_app()


def test_configuration_becomes_an_app() -> None:
    """The job has command, environment and resources of its configuration. Keys are references."""
    from transload_prefect.variables import AppJobConfiguration

    keys = (
        "PREFECT_API_KEY",
        "PREFECT_CLIENT_CUSTOM_HEADERS",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL",
    )
    env = {"X": "1", **dict.fromkeys(keys, "hunter2")}
    made = AppJobConfiguration(
        command="echo 'a b' c", env=env, image="img", cpu=2, gpu=1, mem="512M"
    )
    app = made.to_app()
    role = app.roles[0]
    assert (role.entrypoint, role.args, role.image) == ("echo", ["a b", "c"], "img")
    assert (role.resource.cpu, role.resource.gpu, role.resource.memMB) == (2, 1, 512)
    assert role.env == {"X": "1"}
    assert role.secrets == {key: f"env:{key}" for key in keys}
    assert "hunter2" not in app.to_json()


def test_the_whole_app() -> None:
    """Mounts, secrets, metadata, replicas and a resource may be set.

    A flow run itself runs once.
    """
    from transload.errors import SpecError
    from transload.specs import BindMount
    from transload_prefect.variables import AppJobConfiguration

    more: dict[str, Any] = {"metadata": {"kubernetes.x": 1}, "resource": "cpu.large"}
    mounts = ["type=bind", "src=/a", "dst=/b", "readonly"]
    made = AppJobConfiguration(
        command="mpirun x", mounts=mounts, secrets={"TOKEN": "file:/t"}, replicas=3, **more
    )
    role = made.to_app().roles[0]
    assert role.mounts == [BindMount("/a", "/b", read_only=True)]
    assert (role.secrets, role.metadata, role.num_replicas) == (
        {"TOKEN": "file:/t"},
        {"kubernetes.x": 1},
        3,
    )
    assert role.resource == named_resources["cpu.large"]
    with pytest.raises(SpecError, match="replicas=2: a flow run is run once"):
        AppJobConfiguration(replicas=2).to_app()


async def test_variables_reach_the_app(host: Any, tmp_path: Path) -> None:
    """What a deployment says, through the server and the pool's template, is in the app that its
    flow run becomes.
    """
    from transload_prefect import TransloadWorker

    (tmp_path / "token").write_text("hunter2")
    given = {
        "secrets": {"TOKEN": f"file:{tmp_path}/token"},
        "metadata": {"team": "x"},
        "retries": 1,
        "time_limit": "60s",
        "notice": "5s",
        "checkpoints": True,
    }
    command = "sh -c 'test $TOKEN = hunter2 && echo this is $TRANSLOAD_REPLICA_ID of $GIVEN'"
    more = {"replicas": 2, "cpu": 1, "mem": "64M", "env": {"GIVEN": "two"}}
    pool = f"pool-{uuid4().hex[:6]}"
    deployment = _deployment(host, pool, command=command, **given, **more)
    run = host.post(f"/deployments/{deployment}/create_flow_run")["id"]
    async with TransloadWorker(work_pool_name=pool, name="one") as worker:
        await worker.get_and_submit_flow_runs()
        handle = await _soon(lambda: host.flow_run(run)["infrastructure_pid"])
        lines = {f"flow/{n} this is {n} of two" for n in range(2)}
        await _soon(lambda: lines <= {each["message"] for each in host.logs(run)})
        await _soon(lambda: not worker._submitting_flow_run_ids)
    found = host_runner("prefect").job(handle).description()
    assert found is not None
    role = found.app.roles[0]
    assert (role.num_replicas, role.resource.cpu, role.resource.memMB) == (2, 1, 64)
    assert (role.secrets["TOKEN"], role.metadata) == (given["secrets"]["TOKEN"], {"team": "x"})
    assert (role.max_retries, found.app.timeout, role.checkpoints) == (1, 60, True)
    assert role.notice == Notice(5)


def _configured(variables: dict[str, Any], template: dict[str, Any] | None = None) -> Any:
    """Return the configuration that a pool's template makes of variables."""
    from transload_prefect import TransloadWorker
    from transload_prefect.variables import AppJobConfiguration

    made = template or TransloadWorker.get_default_base_job_template()
    return asyncio.run(AppJobConfiguration.from_template_and_values(made, variables))


def test_a_work_pool_offers_the_settings_of_a_job() -> None:
    """All of them, described as everywhere, and of the types that Prefect checks."""
    from prefect.utilities.schema_tools import validate

    from transload.pipelines import SETTINGS, OverrideOptions
    from transload_prefect import TransloadWorker

    template = TransloadWorker.get_default_base_job_template()
    offered = template["variables"]["properties"]
    settings = set(OverrideOptions.__annotations__) - {"name", "role", "env"}
    assert settings <= set(offered) and settings <= set(template["job_configuration"])
    assert {name: offered[name]["description"] for name in settings} == {
        name: SETTINGS[name].help for name in settings
    }
    right: dict[str, Any] = {
        "gpu": "2",
        "mem": "8G",
        "replicas": 1,
        "segment": "1h",
        "stall_after": "10m",
        "on_stall": "dump",
        "stall_signal": "USR2",
        "notice": {"seconds": 60, "signal": "USR1"},
        "mounts": ["type=bind,src=/a,dst=/b", {"type": "bind", "src_path": "/c", "dst_path": "/d"}],
        "max_interruptions": 3,
        "progress_server": True,
        "retry_delay": "5s",
        "env.LEVEL": "info",
    }
    validate(right, template["variables"], raise_on_error=True)
    app = _configured(right).to_app()
    role = app.roles[0]
    assert (app.segment, role.resource.gpu, role.resource.memMB) == (3600, 2, 8192)
    assert (role.stall_after, role.on_stall, role.stall_signal) == (600, "dump", "USR2")
    assert role.notice == Notice(60, "USR1")
    assert role.mounts == [BindMount("/c", "/d"), BindMount("/a", "/b")]
    assert (role.max_interruptions, role.progress_server, role.retry_delay) == (3, True, 5)
    assert role.env == {"LEVEL": "info"}
    wrong = {"gpu": [1], "time_limit": True, "checkpoints": 3}
    errors = validate(wrong, template["variables"])
    assert {error.path[0] for error in errors} == set(wrong)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"retry": 1}, "retry=1: no variable of the work pool: did you mean 'retries'"),
        ({"gpu": "two"}, "gpu='two': must be a whole number"),
        ({"gpu": 1.5}, "gpu=1.5: must be an int"),
        ({"stall_after": "0s"}, "stall_after='0s': must be above 0"),
        ({"time_limit": -1}, "time_limit=-1: must be above 0"),
        ({"replicas": "2"}, "replicas=2: a flow run is run once"),
        ({"mounts": ["src=/a"]}, "mounts: 'src=/a': the type must come first"),
    ],
)
def test_wrong_settings_of_a_flow_run(variables: dict[str, Any], says: str) -> None:
    """Each is refused by the name of the variable, when the job is made and not when it is found."""
    configuration = _configured(variables)
    with pytest.raises(SpecError, match=re.escape(says)):
        configuration.to_app()


def test_a_wrong_template_of_a_work_pool() -> None:
    """An unknown field is refused with the nearest one, and a variable of the pool's own counts."""
    template: dict[str, Any] = {
        "job_configuration": {"cfg": {"partition": "{{ partition }}"}},
        "variables": {},
    }
    made = _configured({"partition": "gpu"}, template)
    assert made.to_app() and made.cfg == {"partition": "gpu"}
    template["job_configuration"]["mounts_"] = "{{ partition }}"
    says = "job_configuration.mounts_: the work pool's template: did you mean 'mounts'"
    with pytest.raises(SpecError, match=says):
        _configured({}, template).to_app()


@pytest.mark.parametrize("number", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_flow_runs_with_keys_of_their_own(
    number: int, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submitted two at once again and again, each job gets its own flow run's key, and this process
    neither.
    """
    from concurrent.futures import ThreadPoolExecutor
    from types import SimpleNamespace

    from transload_prefect import TransloadWorker
    from transload_prefect.variables import AppJobConfiguration
    from transload_testing.scripted import ScriptedScheduler

    got: dict[str, str] = {}

    def submit(self: object, request: object, app_id: str, submission: Any) -> bool:
        got[app_id] = submission.secrets["flow"][
            "PREFECT_API_KEY"
        ]  # nothing is started: what arrives is the test
        return True

    monkeypatch.setattr(ScriptedScheduler, "submit", submit)
    monkeypatch.delenv("PREFECT_API_KEY", raising=False)
    worker = TransloadWorker(work_pool_name="none")

    def start(turn: int) -> tuple[str, str]:
        key = f"hunter2-{turn % 2}"
        env = {"PREFECT_API_KEY": key}
        made = AppJobConfiguration(
            command="true", scheduler="scripted", env=env, stream_output=False
        )
        flow_run: Any = SimpleNamespace(id=uuid4(), name="two", run_count=0)
        return worker._start(flow_run, made).handle or "", key

    with ThreadPoolExecutor(2) as pool:
        started = list(pool.map(start, range(number)))
    assert {handle: got[handle.rpartition("/")[2]] for handle, _ in started} == dict(started)
    assert "PREFECT_API_KEY" not in os.environ


def test_a_scheduler_of_containers_needs_an_image(
    transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow run in containers without an image is refused by the option's name.

    The scheduler says what Docker's says: it would ask its engine before that, and no engine is in
    this suite.
    """
    import sys
    from types import SimpleNamespace

    from transload.errors import SpecError
    from transload_prefect import TransloadWorker
    from transload_prefect.adapter import runner_of
    from transload_prefect.variables import AppJobConfiguration
    from transload_testing.scripted import ScriptedScheduler

    def convert(self: object, app: Any, cfg: object) -> None:
        assert app.roles[0].entrypoint == "python", (
            "its own interpreter is in no image, the scheduler's own neither"
        )
        raise SpecError(
            f"roles[0].image={app.roles[0].image!r}: must be the name of an image"
        )  # as Docker's does

    flow_run: Any = SimpleNamespace(id=uuid4(), name="one", run_count=0)
    here = AppJobConfiguration().to_app().roles[0]
    assert (here.entrypoint, here.image) == (sys.executable, "")
    made = AppJobConfiguration(command="prefect flow-run execute", image="img:1").to_app().roles[0]
    assert (made.entrypoint, made.image) == ("python", "img:1")
    elsewhere = AppJobConfiguration().to_app(here=False).roles[0]
    assert (elsewhere.entrypoint, elsewhere.image) == ("python", ""), (
        "the scheduler may have an image of its own"
    )
    monkeypatch.setattr(ScriptedScheduler, "convert", convert)
    scripted = runner_of().scheduler("scripted")
    monkeypatch.setattr(scripted, "capabilities", scripted.capabilities._replace(shares_disk=False))
    configuration = AppJobConfiguration(scheduler="scripted", stream_output=False)
    with pytest.raises(
        SpecError, match=r"image='': must be.*set the variable image of the work pool"
    ):
        TransloadWorker(work_pool_name="none")._start(flow_run, configuration)


async def test_an_answer_that_is_none_does_not_end_the_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cancel still reaches the job after a proxy answered for an absent server."""
    from prefect.client.schemas.objects import StateType

    from transload_prefect import worker

    answers: list[Any] = [ValueError("Expecting value: line 1 column 1 (char 0)")]

    class Client:
        async def read_flow_run(self, flow_run_id: UUID) -> Any:
            if answers:
                raise answers.pop()
            return SimpleNamespace(start_time=None, state=SimpleNamespace(type=StateType.CANCELLED))

    monkeypatch.setattr(worker, "QUEUE_INTERVAL", 0.01)
    made: Any = object.__new__(worker.TransloadWorker)
    made._client = Client()
    kills: list[bool] = []
    execution: Any = SimpleNamespace(kill=lambda asked: kills.append(asked))
    await asyncio.wait_for(made._pass_cancel_on(uuid4(), execution), 10)
    assert kills == [True]
