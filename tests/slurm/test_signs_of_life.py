"""Progress that a job on a cluster reports, and replicas that have stalled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from transload.errors import UnsupportedFeature
from transload.runner import Runner
from transload.specs import AppDef, AppState, Role, parse_app_handle

ShellApp = Callable[..., AppDef]
STUCK = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1)
print("up", flush=True)
def the_place_where_it_hangs():
    time.sleep(300)
the_place_where_it_hangs()
"""


def _status(runner: Runner, handle: str) -> Any:
    status = runner.status(handle)
    assert status is not None
    return status


def _end(runner: Runner, handle: str) -> Any:
    status = runner.wait(handle, timeout=100)
    assert status is not None and status.is_terminal(), status
    return status


POST = """
import json, os, sys, urllib.request
status = {"progressPercentage": 71, "metrics": [{"name": "loss", "value": "0.5"}]}
with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
    headers = {"Authorization": "Bearer " + file.read()}
data = json.dumps({"trainerStatus": status}).encode()
request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], data, headers)
print(urllib.request.urlopen(request).status, sys.argv[1:])
"""


def test_progress_that_is_posted(runner: Runner) -> None:
    """A program that posts its progress finds the server on its node. A container is refused."""
    role = Role("main", "/tmp", entrypoint=sys.executable, progress_server=True)
    role.args = ["-c", POST, "an argument"]
    handle = runner.run(AppDef("posts", [role]), "slurm")
    end = _end(runner, handle)
    assert end.state is AppState.SUCCEEDED, end
    assert (end.progress.fraction, end.progress.text) == (0.71, "loss 0.5")
    assert list(runner.log_lines(handle, "main", 0)) == ["200 ['an argument']\n"]
    assert runner.results(handle).results["0"] == {"loss": 0.5}
    with pytest.raises(UnsupportedFeature, match=r"roles\[0\]\.progress_server: .*apptainer"):
        runner.dryrun(AppDef("posts", [role]), "slurm", {"container": "apptainer"})


def test_stacks_of_what_has_stalled(runner: Runner, eventually: Any) -> None:
    """With ``dump`` the stacks of the program stand in its log.

    A program without a handler is not sent the signal, which would end it.
    """

    def role(name: str, *command: str) -> Role:
        more: dict[str, Any] = {"stall_after": 1.5, "on_stall": "dump"}
        return Role(name, "/tmp", entrypoint=command[0], args=list(command[1:]), **more)

    roles = [role("stuck", sys.executable, "-c", STUCK), role("other", "sleep", "300")]
    handle = runner.run(AppDef("test", roles), "slurm")

    eventually(lambda: "role 'other'" in _status(runner, handle).msg, 60)
    eventually(lambda: "the_place" in "".join(runner.log_lines(handle, "stuck", 0)), 60)
    status = _status(runner, handle)
    assert "role 'stuck'" in status.msg
    assert [role.replicas[0].state for role in status.roles] == [AppState.RUNNING] * 2


@pytest.mark.slow
def test_a_suspended_job_has_not_stalled(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Any
) -> None:
    """A stall counts only the time in which Slurm has not suspended the job."""
    handle = runner.run(shell_app("echo up; exec sleep 300", stall_after=4.0), "slurm")
    eventually(lambda: list(runner.log_lines(handle, "main", 0)) == ["up\n"], 60)
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.slurm_job(parse_app_handle(handle).app_id)
    cluster.tool("scontrol", "suspend", job)
    eventually(lambda: _status(runner, handle).state is AppState.PENDING, 30)
    time.sleep(9)
    cluster.tool("scontrol", "resume", job)
    eventually(lambda: _status(runner, handle).state is AppState.RUNNING, 30)
    assert "stalled" not in _status(runner, handle).msg
    eventually(lambda: "stalled" in _status(runner, handle).msg, 30)
