"""Progress that a job on a cluster reports, and replicas that have stalled."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import UnsupportedFeature
from transload.runner import Runner
from transload.specs import AppDef, AppState, Notice, Role, parse_app_handle

ShellApp = Callable[..., AppDef]
REPORT = 'report() { echo "$1" > "$TRANSLOAD_PROGRESS_FILE"; }\n'
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


def test_progress_reaches_the_status(
    runner: Runner, shell_app: ShellApp, tmp_path: Path, eventually: Any
) -> None:
    """What is written to the file is in the status within seconds, with the time that is left."""
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f"""{REPORT}
    report '{{"step": 10, "total": 100, "text": "epoch 1"}}'
    read x < {go}
    report '{{"step": 60, "total": 100}}'
    """
    handle = runner.run(shell_app(script), "slurm")
    status = eventually(lambda: (s := _status(runner, handle)).progress and s, 60)
    first = status.progress
    assert (first.step, first.total, first.fraction) == (10, 100, 0.1)
    assert (first.text, first.eta_seconds) == ("epoch 1", None)
    go.write_text("go\n")
    last = _end(runner, handle).progress
    assert (last.step, last.text) == (60, None)
    assert last.eta_seconds == pytest.approx(0.4 * (last.at - first.at) / 0.5, abs=0.2)


def test_what_is_no_progress(runner: Runner) -> None:
    """Nonsense, a FIFO or a link in the place of the file is no progress, and stops nothing."""
    lines = (
        "echo nonsense > $TRANSLOAD_PROGRESS_FILE",
        "mkfifo $TRANSLOAD_PROGRESS_FILE",
        "ln -s /etc/passwd $TRANSLOAD_PROGRESS_FILE",
        """echo '{"fraction": 1.4}' > $TRANSLOAD_PROGRESS_FILE""",
        """echo '{"fraction": NaN}' > $TRANSLOAD_PROGRESS_FILE""",
    )
    args = ["-c", 'shift $(( $1 + 1 )); eval "$1"; sleep 1', "sh", "${replica_id}", *lines]
    role = Role("main", "/tmp", entrypoint="sh", args=args, num_replicas=len(lines))
    status = _end(runner, runner.run(AppDef("test", [role]), "slurm"))
    assert (status.state, status.progress) == (AppState.SUCCEEDED, None)


def test_progress_leaves_the_job_once_a_second_at_most(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path
) -> None:
    """However often a job reports, its state is written once a second for that."""
    script = f"""{REPORT}
    i=0; while [ $i -lt 300 ]; do i=$((i+1)); report "{{\\"step\\": $i}}"; sleep 0.01; done
    """
    handle = runner.run(shell_app(script), "slurm")
    place = slurm_dir / parse_app_handle(handle).app_id / "state.json"
    seen: set[int] = set()
    while not _status(runner, handle).is_terminal():
        if place.exists():
            seen.add(place.stat().st_mtime_ns)
        time.sleep(0.02)
    status = _end(runner, handle)
    assert status.progress.step == 300
    replica = status.roles[0].replicas[0]
    assert len(seen) <= 6 + (replica.end_time - replica.start_time)


@pytest.mark.slow
def test_an_interruption_keeps_progress_and_says_the_step(
    runner: Runner, shell_app: ShellApp, eventually: Any
) -> None:
    """The message of an interruption names the step. What was reported stays until the next."""
    script = f"""{REPORT}
    step() {{ report '{{"step": '$1', "total": 10000}}'; }}
    [ "$TRANSLOAD_INTERRUPTIONS" = 1 ] && step 4300 && exit 0
    step 4200
    trap 'exit 75' USR1
    while :; do sleep 0.1; done
    """
    app = shell_app(script, notice=Notice(2, "USR1"))
    app.segment = 6.0
    handle = runner.run(app, "slurm")
    words = "was interrupted (segment) at step 4,200 after"
    eventually(lambda: words in _status(runner, handle).msg, 60)
    assert _status(runner, handle).progress.step == 4200
    status = _end(runner, handle)
    assert status.state is AppState.SUCCEEDED
    assert status.roles[0].replicas[0].earlier[0].step == 4200
    assert [done for _, done in status.progress.history] == [0.42, 0.43]


def test_stalled_is_noted(
    runner: Runner, shell_app: ShellApp, tmp_path: Path, eventually: Any
) -> None:
    """A replica that shows no sign of life is named in the status, and goes on."""
    go = tmp_path / "go"
    end = tmp_path / "end"
    os.mkfifo(go)
    os.mkfifo(end)
    line = f"read x < {go}; echo on; read x < {end}"
    handle = runner.run(shell_app(line, stall_after=1.5), "slurm")
    eventually(lambda: "stalled" in _status(runner, handle).msg, 60)
    status = _status(runner, handle)
    assert status.state is AppState.RUNNING
    assert status.msg == (
        "role 'main', replica 0 has stalled: no progress, log line or result for 1.5 s"
    )
    time.sleep(5)  # what it writes at a signal of ours is no sign of life: not that long, though
    go.write_text("go\n")
    eventually(lambda: "stalled" not in _status(runner, handle).msg, 20)
    end.write_text("go\n")
    assert _end(runner, handle).msg == ""


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
    """With ``dump`` the error of the status has the program's stacks.

    A program without a handler is not sent the signal, which would end it.
    """

    def role(name: str, *command: str) -> Role:
        more: dict[str, Any] = {"stall_after": 1.5, "on_stall": "dump"}
        return Role(name, "/tmp", entrypoint=command[0], args=list(command[1:]), **more)

    roles = [role("stuck", sys.executable, "-c", STUCK), role("other", "sleep", "300")]
    handle = runner.run(AppDef("test", roles), "slurm")

    def both() -> Any:
        status = _status(runner, handle)
        said = status.roles[0].replicas and status.roles[0].replicas[0].structured_error_msg
        return "role 'other'" in status.msg and said not in (None, "<NONE>") and status

    status = eventually(both, 60)
    error = json.loads(status.roles[0].replicas[0].structured_error_msg)
    assert "the_place_where_it_hangs" in error["message"]["extraInfo"]["py_callstack"]
    assert "stalled" in error["message"]["message"] and "stalled" in status.msg
    assert [role.replicas[0].state for role in status.roles] == [AppState.RUNNING] * 2


@pytest.mark.slow
def test_a_suspended_job_has_not_stalled(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Any
) -> None:
    """A stall counts only the time in which Slurm has not suspended the job."""
    handle = runner.run(shell_app("echo up; exec sleep 300", stall_after=4.0), "slurm")
    eventually(lambda: list(runner.log_lines(handle, "main", 0)) == ["up\n"], 60)
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.apps.store.job_id(parse_app_handle(handle).app_id)
    cluster.tool("scontrol", "suspend", job)
    eventually(lambda: _status(runner, handle).state is AppState.PENDING, 30)
    time.sleep(9)
    cluster.tool("scontrol", "resume", job)
    eventually(lambda: _status(runner, handle).state is AppState.RUNNING, 30)
    assert "stalled" not in _status(runner, handle).msg
    eventually(lambda: "stalled" in _status(runner, handle).msg, 30)
