"""Of all starts of one job by Slurm only the newest counts, and an end is an end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, AppStatus, RetryPolicy, macros, parse_app_handle

Eventually = Callable[..., Any]
ShellApp = Callable[..., AppDef]


def ended(runner: Runner, handle: str, timeout: float = 100) -> AppStatus:
    """Wait for an app's end."""
    status = runner.wait(handle, timeout=timeout)
    assert status is not None
    return status


def job_of(runner: Runner, handle: str) -> str:
    """Return the id of an app's Slurm job."""
    scheduler: Any = runner.scheduler("slurm")
    job: str = scheduler.slurm_job(parse_app_handle(handle).app_id)
    return job


@pytest.mark.parametrize("code", [0, 3])
def test_requeue_after_the_end(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    tmp_path: Path,
    slurm_dir: Path,
    code: int,
) -> None:
    """A job that is put back in the queue after its app has ended runs nothing again, and its end
    stays as it was.
    """
    # a gang ends with its first failure: none before both have begun
    both = f"until test -e {tmp_path}/starts.0 && test -e {tmp_path}/starts.1; do sleep 0.1; done"
    command = f"echo x >> {tmp_path}/starts.{macros.replica_id}; {both}; exit {code}"
    handle = runner.run(shell_app(command, num_replicas=2), "slurm", {"requeue": True})
    first = ended(runner, handle)
    assert first.state is (AppState.FAILED if code else AppState.SUCCEEDED)
    job = job_of(runner, handle)
    words = ["squeue", "-h", "-t", "all", "-o", "%T", "-j", job]
    done = "COMPLETED" if code == 0 else "FAILED"
    eventually(lambda: cluster.tool(*words).strip() == done, 30)
    subprocess.run(["scontrol", "requeue", job], env=cluster.env, check=True)
    seen: set[str] = set()
    eventually(lambda: cluster.tool(*words).strip() == "PENDING", 30)
    cluster.tool("scontrol", "update", f"jobid={job}", "StartTime=now+3")  # else it is held longer

    def over() -> bool:
        seen.add(str(runner.status(handle).state))
        restarted = "Restarts=1" in cluster.tool("scontrol", "-o", "show", "job", job)
        return restarted and cluster.tool(*words).strip() == done

    eventually(over, 60)
    assert [len((tmp_path / f"starts.{k}").read_text().split()) for k in range(2)] == [1, 1]
    assert seen == {str(first.state)}
    last = runner.status(handle)
    assert last is not None
    assert (last.msg, last.num_restarts) == (first.msg, first.num_restarts)


def test_requeue_after_an_end_that_slurm_alone_saw(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually, tmp_path: Path
) -> None:
    """A killed keeper writes no end. Once the job is known as FAILED, it does not run again."""
    app = shell_app(f"echo x >> {tmp_path}/starts; sleep 300", max_retries=1)
    handle = runner.run(app, "slurm", {"requeue": True})
    eventually((tmp_path / "starts").exists, 30)
    job = job_of(runner, handle)
    cluster.tool("scancel", "--signal=KILL", "--batch", job)
    first = ended(runner, handle)
    assert first.state is AppState.FAILED
    subprocess.run(["scontrol", "requeue", job], env=cluster.env, check=True)

    def shown(words: str) -> bool:
        return words in cluster.tool("scontrol", "-o", "show", "job", job)

    eventually(lambda: shown("JobState=PENDING"), 30)
    cluster.tool(
        "scontrol", "update", f"jobid={job}", "StartTime=now+3"
    )  # else Slurm holds it for two minutes
    eventually(lambda: shown("Restarts=1") and shown("JobState=FAILED"), 60)
    assert (tmp_path / "starts").read_text() == "x\n"
    assert runner.status(handle) == first


@pytest.mark.slow
def test_old_start_has_no_say(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    tmp_path: Path,
    slurm_dir: Path,
) -> None:
    """What an old start on a node that was given up comes to does not count.

    The old start's replica is ended by its wrapper, which finds that it was replaced.
    """
    mine = f"{tmp_path}/$TRANSLOAD_RETRY"
    wait = f"until test -e {mine}.go; do sleep 0.1; done"
    command = f"echo $$ $SLURMD_NODENAME > {mine}.new; mv {mine}.new {mine}; {wait}; exit $TRANSLOAD_RETRY"
    app = shell_app(command, max_retries=1, retry_policy=RetryPolicy.APPLICATION)
    handle = runner.run(app, "slurm")
    eventually((tmp_path / "0").exists, 30)
    old, node = (tmp_path / "0").read_text().split()
    process = cluster.processes.pop(node)  # slurmd alone: its step daemon and all below live on
    process.kill()
    process.wait()
    cluster.tool("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    try:
        eventually(lambda: runner.status(handle) and (tmp_path / "1").exists(), 60)
        (tmp_path / "0.go").touch()
        eventually(
            lambda: (
                not Path(f"/proc/{old}").exists() or "Z" in Path(f"/proc/{old}/stat").read_text()
            ),
            30,
        )
        eventually(
            lambda: (
                (s := runner.status(handle)) and s.state is AppState.RUNNING and s.num_restarts == 1
            ),
            30,
        )
        (tmp_path / "1.go").touch()
        status = ended(runner, handle)
        assert status.state is AppState.FAILED, status
        assert "exit code 1" in status.msg
        folder = slurm_dir / parse_app_handle(handle).app_id
        assert json.loads((folder / "states.jsonl").read_text())["num_restarts"] == 1
        alive = ("pgrep", "-f", f"{folder}/job/__main__.py")
        eventually(
            lambda: not cluster.tool(*alive).strip(), 40, "every wrapper and agent has ended"
        )
    finally:
        cluster.start_node(node)
        cluster.tool("scontrol", "update", f"nodename={node}", "state=resume")
        idle = ("sinfo", "-h", "-p", "main", "-o", "%T %D")
        cluster.until(lambda: cluster.tool(*idle).strip() == "idle 3", "the nodes are back", 60)
