"""A real cluster loses nodes and controllers, and forgets jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transload.errors import SubmitError
from transload.runner import Runner
from transload.schedulers import Changes
from transload.specs import AppDef, AppState, AppStatus, Resource, RetryPolicy, parse_app_handle
from transload_slurm import jobs, submission
from transload_slurm.jobs import THREAD
from transload_slurm.scheduler import SlurmScheduler

Eventually = Callable[..., Any]
ShellApp = Callable[..., AppDef]


def ended(runner: Runner, handle: str, timeout: float = 100) -> AppStatus:
    """Wait for an app's end."""
    status = runner.wait(handle, timeout=timeout)
    assert status is not None
    return status


def lines(runner: Runner, handle: str, k: int = 0) -> list[str]:
    """Return a replica's log."""
    return list(runner.log_lines(handle, "main", k))


@pytest.fixture
def lost_node(cluster: Any) -> Iterator[Callable[[str], None]]:
    """Kill a node with all that runs on it, by ``lost_node("node2")``. It is idle after the test.

    The controller is told at once, as an operator or a health check would, unless ``told=False``:
    then it finds out.
    """
    lost: list[str] = []

    def lose(name: str, *, told: bool = True) -> None:
        lost.append(name)
        cluster.kill(name)
        if told:
            cluster.tool("scontrol", "update", f"nodename={name}", "state=down", "reason=test")

    yield lose
    for name in lost:
        cluster.start_node(name)
        cluster.tool("scontrol", "update", f"nodename={name}", "state=resume")
    idle = ("sinfo", "-h", "-p", "main", "-o", "%T %D")
    cluster.until(lambda: cluster.tool(*idle).strip() == "idle 3", "the nodes are back", 60)


def on_node(runner: Runner, handle: str, eventually: Eventually) -> str:
    """Return the node on which the first replica says it runs."""
    said: list[str] = eventually(lambda: lines(runner, handle), 30)
    return said[-1].strip()


@pytest.mark.slow
def test_controller_finds_out_that_a_node_is_lost(
    runner: Runner, shell_app: ShellApp, eventually: Eventually, lost_node: Callable[..., None]
) -> None:
    """A job without retries whose node is lost is FAILED once the controller finds out."""
    handle = runner.run(
        shell_app("echo $SLURMD_NODENAME; sleep 200", num_replicas=2),
        "slurm",
        {"nodelist": "node2"},
    )
    lost_node(on_node(runner, handle, eventually), told=False)
    status = ended(runner, handle)
    assert status.state is AppState.FAILED
    assert "a node was lost" in status.msg


def test_node_is_lost(
    runner: Runner, shell_app: ShellApp, eventually: Eventually, lost_node: Callable[..., None]
) -> None:
    """A job without retries on a node that goes down is FAILED with the reason."""
    handle = runner.run(
        shell_app("echo $SLURMD_NODENAME; sleep 200", num_replicas=2),
        "slurm",
        {"nodelist": "node2"},
    )
    lost_node(on_node(runner, handle, eventually))
    status = ended(runner, handle)
    assert status.state is AppState.FAILED
    assert "a node was lost" in status.msg


def test_node_is_lost_and_the_app_is_started_again(
    runner: Runner, shell_app: ShellApp, eventually: Eventually, lost_node: Callable[[str], None]
) -> None:
    """With a retry left Slurm starts a job on other nodes without its hold of two minutes.

    The restart is counted.
    """
    command = "echo $SLURMD_NODENAME; test $TRANSLOAD_RETRY -gt 0 && exit 0; sleep 200"
    app = shell_app(command, num_replicas=2, max_retries=1, retry_policy=RetryPolicy.APPLICATION)
    handle = runner.run(app, "slurm")
    began = time.monotonic()
    first = on_node(runner, handle, eventually)
    lost_node(first)
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert time.monotonic() - began < 80
    assert status.num_restarts == 1
    assert [replica.restarts for replica in status.roles[0].replicas] == [1, 1]
    assert lines(runner, handle)[-1].strip() != first


def pair(shell_app: ShellApp, command: str, **fields: Any) -> tuple[AppDef, list[Any]]:
    """Return a job of two components, and its replicas as (role, number)."""
    first, second = shell_app(command, **fields).roles[0], shell_app(command).roles[0]
    second.name = "second"
    return AppDef("pair", [first, second]), [("main", 0), ("second", 0)]


def test_requeue_beyond_the_retries_is_final(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually
) -> None:
    """Each new start by Slurm counts as a retry, and one too many ends the job."""
    app, replicas = pair(shell_app, "echo $TRANSLOAD_RETRY; sleep 200", max_retries=1)
    handle = runner.run(app, "slurm")
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.slurm_job(parse_app_handle(handle).app_id)

    def said(word: str) -> bool:
        return bool(runner.status(handle)) and all(
            word in runner.log_lines(handle, *who) for who in replicas
        )

    for attempt in range(2):
        eventually(lambda want=attempt: said(f"{want}\n"), 60)
        again = ["scontrol", "requeue", job]
        eventually(lambda: subprocess.run(again, env=cluster.env, check=False).returncode == 0, 30)  # noqa: B023
    status = ended(runner, handle)
    assert status.state is AppState.FAILED, status
    assert "retries are used up" in status.msg
    for who in replicas:
        assert [line for line in runner.log_lines(handle, *who) if line.strip().isdigit()] == [
            "0\n",
            "1\n",
        ]


def test_requeue_within_the_retries(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually
) -> None:
    """Components that Slurm starts again end well, all of them, and their new start is counted."""
    command = "echo $TRANSLOAD_RETRY; test $TRANSLOAD_RETRY -gt 0 || sleep 200"
    app, replicas = pair(shell_app, command, max_retries=1)
    handle = runner.run(app, "slurm")
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.slurm_job(parse_app_handle(handle).app_id)
    eventually(lambda: all("0\n" in runner.log_lines(handle, *who) for who in replicas), 60)
    subprocess.run(["scontrol", "requeue", job], env=cluster.env, check=True)
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert status.num_restarts >= 1
    assert [replica.restarts for role in status.roles for replica in role.replicas] == [1, 1]


def test_clock_of_the_client_is_behind(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A requeued job is released once, even if the client's clock is behind."""
    behind = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() - 600)
    monkeypatch.setattr(jobs, "time", behind)
    handle = runner.run(
        shell_app("echo $TRANSLOAD_RETRY; test $TRANSLOAD_RETRY -gt 0 || sleep 200", max_retries=2),
        "slurm",
    )
    job = _scheduler(runner).slurm_job(parse_app_handle(handle).app_id)
    eventually(lambda: lines(runner, handle) == ["0\n"], 60)
    subprocess.run(["scontrol", "requeue", str(job)], env=cluster.env, check=True)
    eventually(lambda: (s := runner.status(handle)) and s.is_terminal(), 40)
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert status.num_restarts == 1


def test_lost_node_of_a_part(
    runner: Runner,
    shell_app: ShellApp,
    eventually: Eventually,
    lost_node: Callable[[str], None],
) -> None:
    """A component without retries on a lost node is FAILED with the reason.

    Slurm ends the other components.
    """
    command = "echo $SLURMD_NODENAME; sleep 200"
    app, replicas = pair(shell_app, command)
    for role in app.roles:
        role.resource = Resource(cpu=10, gpu=0, memMB=100)  # no two on one node
    handle = runner.run(app, "slurm")
    eventually(lambda: all(list(runner.log_lines(handle, *who)) for who in replicas), 60)
    lost_node(next(iter(runner.log_lines(handle, *replicas[1]))).strip())
    status = ended(runner, handle)
    assert status.state is AppState.FAILED, status
    assert "a node was lost" in status.msg


def test_node_that_cannot_start_its_task(
    uneven_cluster: Any, slurm_dir: Path, transload_home: Path, shell_app: ShellApp, tmp_path: Path
) -> None:
    """A node refuses each task, with its part of MPI missing. After its retry the job is FAILED.

    The controller can be asked all the time, so there is nothing to wait for.
    """
    app = shell_app("true", num_replicas=2, max_retries=1)
    options = {"srun_args": ["--mpi=pmi2"], "sbatch_args": ["--nodelist=node[1-2]"]}
    with Runner("tests") as runner:
        status = ended(runner, runner.run(app, "slurm", options), timeout=150)
    assert status.state is AppState.FAILED, status
    assert status.num_restarts == 1
    assert "failed on node node2" in status.msg


def test_controller_is_away_and_comes_back(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually, tmp_path: Path
) -> None:
    """Without a controller for a while a job is UNKNOWN. It goes on, and its end is seen."""
    go = tmp_path / "go"
    command = f"echo up; until test -e {go}; do sleep 0.2; done; echo done"
    handle = runner.run(shell_app(command, num_replicas=2), "slurm")
    other = runner.run(shell_app("echo up; sleep 300"), "slurm")
    eventually(lambda: lines(runner, handle) and lines(runner, other), 30)
    cluster.stop_controller()
    away = time.monotonic()

    def states() -> set[str]:
        return {str(found.state) for found in runner.status_many([handle, other]).values() if found}

    eventually(lambda: states() == {"UNKNOWN"}, 20)
    go.touch()
    # the wrapper's own word of the end needs no controller
    assert ended(runner, handle).state is AppState.SUCCEEDED
    eventually(lambda: time.monotonic() - away > 8, 30)
    unknown = runner.status(other)
    assert unknown is not None
    assert unknown.state is AppState.UNKNOWN
    cluster.start_controller()
    eventually(lambda: (s := runner.status(other)) and s.state is AppState.RUNNING, 60)
    runner.cancel(other)
    assert ended(runner, other).state is AppState.CANCELLED


def test_slow_squeue_does_not_put_off_an_end(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An end that the keeper writes before or during a slow squeue is seen."""
    (tmp_path / "bin").mkdir()
    slow = (
        f'until test -e {tmp_path}/answer; do sleep 0.1; done\nexec {shutil.which("squeue")} "$@"'
    )
    (tmp_path / "bin" / "squeue").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n{slow}\n")
    (tmp_path / "bin" / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    handle = runner.run(
        shell_app(f"until test -e {tmp_path}/asked; do sleep 0.1; done; sleep 1"), "slurm"
    )
    try:
        assert ended(runner, handle, 40).state is AppState.SUCCEEDED
        assert (tmp_path / "asked").exists()
    finally:
        (tmp_path / "answer").touch()
        eventually(lambda: all(thread.name != THREAD for thread in threading.enumerate()), 30)


def test_an_old_answer_of_slurm_does_not_interrupt(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    slurm_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    """A job that starts while squeue takes its time runs, though squeue has seen it wait."""
    slow = tmp_path / "tools" / "squeue"
    slow.parent.mkdir()
    real = shutil.which("squeue")
    slow.write_text(
        f"""#!/bin/sh
said=$({real} "$@"); code=$?
if [ -e {tmp_path}/slow ]; then
    touch {tmp_path}/asked
    until [ -e {tmp_path}/go ]; do sleep 0.05; done
fi
printf '%s\\n' "$said"; exit $code
"""
    )
    slow.chmod(0o755)
    handle = runner.run(
        shell_app("echo up; sleep 60"), "slurm", {"sbatch_args": ["--hold"]}, app_id="starts"
    )
    state = slurm_dir / "starts" / "states.jsonl"
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    eventually(lambda: "JobHeldUser" in runner.status(handle).msg, 30)  # type: ignore[union-attr]
    number = cluster.tool("squeue", "-h", "-n", "starts", "-o", "%i").strip()
    (tmp_path / "slow").touch()

    def ask(other: Runner) -> AppStatus | None:
        found = other.status(handle)
        while not (tmp_path / "asked").exists():  # an answer may be some seconds old
            found = other.status(handle)
        return found

    with ThreadPoolExecutor(1) as pool, Runner("tests") as other:
        status = pool.submit(ask, other)
        try:
            eventually((tmp_path / "asked").exists, 30)
            cluster.tool("scontrol", "release", number)
            eventually(lambda: state.exists() and "RUNNING" in state.read_text(), 30)
        finally:
            (tmp_path / "go").touch()
        found = status.result(30)
    assert found is not None
    assert found.state is AppState.RUNNING and not found.msg, found


def test_submit_without_a_controller(
    runner: Runner, cluster: Any, shell_app: ShellApp, slurm_dir: Path
) -> None:
    """A submit without a controller is a transient error that leaves nothing."""
    elsewhere = cluster.base / "elsewhere.conf"
    text = cluster.conf.read_text().splitlines()
    there = [
        f"SlurmctldPort={_unused()}" if line.startswith("SlurmctldPort") else line for line in text
    ]
    elsewhere.write_text("\n".join([*there, "MessageTimeout=2", ""]))
    os.environ["SLURM_CONF"] = str(elsewhere)
    try:
        with pytest.raises(SubmitError) as caught:
            runner.run(shell_app("true"), "slurm", app_id="nobody")
    finally:
        os.environ["SLURM_CONF"] = str(cluster.conf)
    assert caught.value.transient
    assert not (slurm_dir / "nobody").exists()
    assert runner.status("slurm://tests/nobody") is None


def _unused() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_job_that_the_controller_has_forgotten(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually, slurm_dir: Path
) -> None:
    """Aged out, a job is told by what its wrapper wrote, else by the record of completed jobs, else
    it is UNKNOWN.
    """
    good = runner.run(shell_app("true"), "slurm")
    bad = runner.run(shell_app("echo up; sleep 200", num_replicas=2), "slurm")
    eventually(lambda: lines(runner, bad), 30)
    scheduler = _scheduler(runner)
    jobs = {handle: scheduler.slurm_job(parse_app_handle(handle).app_id) for handle in (good, bad)}
    cluster.reconfigure(MinJobAge="2")
    try:
        cluster.tool("scancel", jobs[bad])
        gone = ("squeue", "-h", "-t", "all", "-o", "%i", "-j", f"{jobs[good]},{jobs[bad]},1")
        eventually(lambda: not set(cluster.tool(*gone).split()) & set(jobs.values()), 100)
        assert ended(runner, good).state is AppState.SUCCEEDED
        # as if its keeper had died with the machine: nobody has seen the end yet
        state = slurm_dir / parse_app_handle(bad).app_id / "states.jsonl"
        written = {**json.loads(state.read_text()), "signalled": False, "state": "RUNNING"}
        state.write_text(json.dumps(written))
        os.rename(cluster.base / "jobcomp.txt", cluster.base / "jobcomp.away")
        try:
            bad_id = parse_app_handle(bad).app_id
            unknown = SlurmScheduler("tests").describe([bad_id])[bad_id]
            assert unknown is not None
            assert unknown.status.state is AppState.UNKNOWN
        finally:
            os.rename(cluster.base / "jobcomp.away", cluster.base / "jobcomp.txt")
        assert ended(runner, bad).state is AppState.CANCELLED
    finally:
        cluster.reconfigure(MinJobAge="300")


def _scheduler(runner: Runner) -> SlurmScheduler:
    found = runner.scheduler("slurm")
    assert isinstance(found, SlurmScheduler)
    return found


_CRASHING = """
import os, sys
from transload.runner import Runner
from transload.specs import AppDef
from transload_slurm import submission
where = sys.argv[1]
if where == "before sbatch":
    submission._sbatch = lambda *a: os._exit(9)
else:
    write = submission.write_file
    submission.write_file = lambda path, text: os._exit(9) if path.endswith("job.json") else write(path, text)
with open(sys.argv[2]) as file:
    app = AppDef.from_json(file.read())
Runner("tests").run(app, "slurm", app_id="crash")
"""


@pytest.mark.parametrize("where", ["before sbatch", "after sbatch"])
def test_submitter_dies_in_the_middle(
    runner: Runner, shell_app: ShellApp, tmp_path: Path, where: str, cluster: Any
) -> None:
    """A submit killed before it noted the job id leaves one job or none.

    The next starts it once.
    """
    app = shell_app(f"echo x >> {tmp_path}/starts; sleep 0.5", num_replicas=1)
    (tmp_path / "app.json").write_text(app.to_json())
    died = subprocess.run(
        [sys.executable, "-c", _CRASHING, where, str(tmp_path / "app.json")],
        check=False,
        env=dict(os.environ),
    )
    assert died.returncode == 9
    if where == "before sbatch":
        assert runner.status("slurm://tests/crash") is None
        assert not runner.scheduler("slurm").existed("crash")
    else:
        assert runner.status("slurm://tests/crash") is not None
        assert runner.scheduler("slurm").existed("crash")
    handle = runner.run(app, "slurm", app_id="crash")
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert (tmp_path / "starts").read_text() == "x\n"


def test_job_of_a_withdrawn_submit_does_nothing(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    tmp_path: Path,
    slurm_dir: Path,
) -> None:
    """A job that comes up after its submit was done again finds another's token, and ends at
    once.
    """
    app = shell_app(f"echo x >> {tmp_path}/starts")
    handle = runner.run(app, "slurm", {"begin": "now+1hour"}, app_id="late")
    script = (slurm_dir / "late" / "job.sh").read_text().replace("now+1hour", "now")
    submission.write_file(str(slurm_dir / "late" / "token"), "another")
    (tmp_path / "late.sh").write_text(script)
    job = cluster.tool("sbatch", "--parsable", str(tmp_path / "late.sh")).strip()
    words = ("squeue", "-h", "-t", "all", "-o", "%T", "-j", job)
    eventually(lambda: cluster.tool(*words).strip() == "FAILED", 30)
    assert not (tmp_path / "starts").exists()
    runner.cancel(handle)
    assert ended(runner, handle).state is AppState.CANCELLED


def test_watching_many_is_one_query(
    runner: Runner, shell_app: ShellApp, eventually: Eventually
) -> None:
    """Watched jobs are asked for together, less and less often, as are those of many threads."""
    handles = [
        runner.run(shell_app("sleep 300"), "slurm", {"begin": "now+1hour"}) for _ in range(5)
    ]
    scheduler = _scheduler(runner)
    changes = Changes()
    watch = scheduler.watch(changes.add)
    assert watch is not None
    watch.update([parse_app_handle(handle).app_id for handle in handles])
    scheduler.jobs.queries = 0
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        changes.wait(deadline - time.monotonic())
    watch.close()
    assert 1 <= scheduler.jobs.queries <= 8
    scheduler.jobs.queries = 0
    with ThreadPoolExecutor(100) as pool:
        found = list(pool.map(runner.status, handles * 60))
    assert {status.state for status in found if status} == {AppState.PENDING}
    assert (len(found), scheduler.jobs.queries <= 20) == (300, True)


@pytest.mark.slow
def test_job_that_only_the_accounting_knows(
    accounting_cluster: Any,
    slurm_dir: Path,
    transload_home: Path,
    shell_app: ShellApp,
    eventually: Eventually,
) -> None:
    """A job that only accounting knows, also one of components, is described by sacct."""
    with Runner("tests") as runner:
        handles = {
            "cancelled": runner.run(shell_app("echo up; sleep 200", num_replicas=2), "slurm"),
            "failed": runner.run(shell_app("exit 3"), "slurm"),
        }
        first, second = shell_app("true").roles[0], shell_app("true").roles[0]
        second.name = "second"
        pair = AppDef("pair", [first, second])
        handles["pair"] = runner.run(pair, "slurm")
        scheduler = _scheduler(runner)
        jobs = {
            name: scheduler.slurm_job(parse_app_handle(handle).app_id)
            for name, handle in handles.items()
        }
        eventually(lambda: lines(runner, handles["cancelled"]), 60)
        accounting_cluster.tool("scancel", jobs["cancelled"])
        known = (
            "squeue",
            "-h",
            "-t",
            "all",
            "-o",
            "%F",
            "-j",
            ",".join(["999999", *filter(None, jobs.values())]),
        )
        eventually(lambda: not accounting_cluster.tool(*known).split(), 150)
        for name, handle in handles.items():
            folder = slurm_dir / parse_app_handle(handle).app_id
            for path in [*folder.rglob("states.jsonl"), folder / "slurm.json"]:
                path.unlink(missing_ok=True)
            assert name
        ids = {name: parse_app_handle(handle).app_id for name, handle in handles.items()}
        found = SlurmScheduler("t").describe(ids.values())
        described = {name: found[app_id] for name, app_id in ids.items()}
        states = {name: str(each.status.state) for name, each in described.items() if each}
        assert states == {
            "cancelled": "CANCELLED",
            "failed": "FAILED",
            "pair": "SUCCEEDED",
        }
        for handle in handles.values():
            runner.delete(handle)


@pytest.mark.slow
def test_database_is_away_and_comes_back(
    accounting_cluster: Any,
    slurm_dir: Path,
    transload_home: Path,
    shell_app: ShellApp,
    eventually: Eventually,
) -> None:
    """While slurmdbd is away a forgotten job is UNKNOWN. Its end is known soon after."""
    with Runner("tests") as runner:
        handle = runner.run(shell_app("exit 3"), "slurm")
        assert ended(runner, handle).state is AppState.FAILED
        job = _scheduler(runner).slurm_job(parse_app_handle(handle).app_id)
        known = ("sacct", "-n", "-X", "-o", "State", "-j", job or "")
        eventually(lambda: accounting_cluster.tool(*known).strip() == "FAILED", 60)
        eventually(
            lambda: not accounting_cluster.tool("squeue", "-h", "-t", "all", "-o", "%F").split(),
            150,
        )
        folder = slurm_dir / parse_app_handle(handle).app_id
        for path in (folder / "states.jsonl", folder / "slurm.json"):
            path.unlink(missing_ok=True)
        accounting_cluster.kill("slurmdbd")
        asking = SlurmScheduler("t")

        def state() -> AppState | None:
            app_id = parse_app_handle(handle).app_id
            found = asking.describe([app_id])[app_id]
            return found.status.state if found else None

        assert state() is AppState.UNKNOWN
        accounting_cluster.start_database()
        eventually(lambda: state() is AppState.FAILED, 60)
        runner.delete(handle)


@pytest.mark.slow
def test_account_and_qos(
    accounting_cluster: Any,
    slurm_dir: Path,
    transload_home: Path,
    shell_app: ShellApp,
    eventually: Eventually,
) -> None:
    """Account and QOS reach the database. Those that the user may not have are one clear line."""
    with Runner("tests") as runner:
        handle = runner.run(shell_app("true"), "slurm", {"account": "physics", "qos": "high"})
        assert ended(runner, handle).state is AppState.SUCCEEDED
        job = _scheduler(runner).slurm_job(parse_app_handle(handle).app_id)
        told = ("sacct", "-n", "-P", "-X", "-o", "Account,QOS", "-j", job or "")
        eventually(lambda: accounting_cluster.tool(*told).strip() == "physics|high", 60)
        for cfg, complaint in (
            ({"account": "chemistry"}, "[Ii]nvalid account"),
            ({"qos": "highest"}, "[Ii]nvalid qos"),
        ):
            with pytest.raises(SubmitError, match=complaint) as caught:
                runner.run(shell_app("true"), "slurm", cfg)
            assert not caught.value.transient
        runner.delete(handle)
