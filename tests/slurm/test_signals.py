"""Signals that a user sends to a job reach the program, once, and end nothing of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from transload.runner import Runner
from transload.schedulers.api import Stream
from transload.specs import AppDef, AppState, RetryPolicy, parse_app_handle

Eventually = Callable[..., Any]
ShellApp = Callable[..., AppDef]


def program(sig: str) -> str:
    """Return a program that ends well once it has got a signal."""
    return f"trap 'echo got {sig}; n=1' {sig}; n=0; echo up; until test $n = 1; do sleep 0.1; done; sleep 1; echo saved"


@pytest.mark.parametrize(
    ("way", "sig", "replicas"),
    [([], "INT", 2), ([], "40", 1), (["--batch"], "QUIT", 1), (["--full"], "USR1", 2)],
)
def test_signal_reaches_the_program(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    replicas: int,
    sig: str,
    way: list[str],
) -> None:
    """However a signal is sent, the program's trap runs, and the job ends as the program does."""
    app = shell_app(
        program(sig), num_replicas=replicas, max_retries=1, retry_policy=RetryPolicy.APPLICATION
    )
    handle = runner.run(app, "slurm")
    eventually(
        lambda: all("up\n" in runner.log_lines(handle, "main", k) for k in range(replicas)), 60
    )
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.slurm_job(parse_app_handle(handle).app_id)
    subprocess.run(["scancel", *way, "-s", sig, job], env=cluster.env, check=True)
    status = runner.wait(handle, timeout=30)
    assert status is not None
    assert status.state is AppState.SUCCEEDED, status
    assert status.num_restarts == 0
    for k in range(replicas):
        said = list(runner.log_lines(handle, "main", k, streams=Stream.STDOUT))
        assert said == ["up\n", f"got {sig}\n", "saved\n"]


@pytest.mark.slow
@pytest.mark.parametrize(("roles", "replicas"), [(1, 1), (1, 2), (2, 1)])
def test_signal_before_the_limit_of_time(
    runner: Runner, shell_app: ShellApp, roles: int, replicas: int
) -> None:
    """The signal of ``sbatch --signal`` comes before the limit, to the steps or by the script."""
    app = shell_app(program("USR1"), num_replicas=replicas)
    app.roles += [replace(app.roles[0], name=f"main{number}") for number in range(1, roles)]
    options = ("--signal=USR1@10", "--signal=B:USR1@10")
    handles = [
        runner.run(app, "slurm", {"time": "1", "sbatch_args": [option]}) for option in options
    ]
    for handle in handles:
        status = runner.wait(handle, timeout=120)
        assert status is not None
        assert status.state is AppState.SUCCEEDED, status
        for role in app.roles:
            for k in range(replicas):
                said = list(runner.log_lines(handle, role.name, k, streams=Stream.STDOUT))
                assert said == ["up\n", "got USR1\n", "saved\n"]
