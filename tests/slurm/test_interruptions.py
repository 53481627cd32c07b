"""Interruptions have a cause, are counted apart and bounded, and differ from failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, UnsupportedFeature
from transload.runner import Runner
from transload.specs import AppDef, AppState, Notice, RetryPolicy, Role, parse_app_handle

ShellApp = Callable[..., AppDef]

STEPS = """
cd "$TRANSLOAD_CHECKPOINT_DIR" || exit 9
trap 'echo noticed; exit 75' {signal}
echo "attempt $TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS"
while [ "$(cat step 2>/dev/null || echo 0)" -lt {steps} ]; do
    sleep 0.25
    echo $(( $(cat step 2>/dev/null || echo 0) + 1 )) > new && mv new step
done
echo finished
"""


@pytest.fixture
def preempting(
    preempting_cluster: Any,
    slurm_dir: Path,
    transload_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Runner]:
    """Make a runner on the cluster that pre-empts. Its jobs are ended after the test."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with Runner("tests") as made:
        yield made
        for row in made.list("slurm"):
            made.delete(row.app_handle)


def _status(runner: Runner, handle: str) -> Any:
    status = runner.status(handle)
    assert status is not None
    return status


def _end(runner: Runner, handle: str, timeout: float = 110) -> Any:
    status = runner.wait(handle, timeout=timeout)
    assert status is not None and status.is_terminal(), status
    return status


def _lines(runner: Runner, handle: str, role: str = "main", k: int = 0) -> list[str]:
    return [line.rstrip("\n") for line in runner.log_lines(handle, role, k)]


def _causes(status: Any, k: int = 0) -> list[str | None]:
    return [each.cause for each in status.roles[0].replicas[k].earlier]


def _job(runner: Runner, handle: str) -> str:
    """Return the id of the Slurm job that runs an app now."""
    scheduler: Any = runner.scheduler("slurm")
    found = scheduler.slurm_job(parse_app_handle(handle).app_id)
    assert found is not None
    return str(found)


def _says(runner: Runner, handle: str, line: str, eventually: Any) -> None:
    """Wait for a line of the first replica's log."""
    eventually(lambda: line in _lines(runner, handle), 60)


# -- segments


@pytest.mark.slow
def test_time_in_the_queue_is_not_counted(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Any
) -> None:
    """A job that waits for its next segment longer than its limit of work goes on."""
    line = STEPS.format(signal="TERM", steps=26)
    app = shell_app(line, checkpoints=True, notice=Notice(2), timeout=16.0)
    app.segment = 5.0
    handle = runner.run(app, "slurm")
    eventually(lambda: "interrupted (segment)" in _status(runner, handle).msg, 60)
    status = eventually(lambda: (s := _status(runner, handle)).state is AppState.PENDING and s, 60)
    assert status.roles[0].replicas[0].state is AppState.PENDING
    cluster.tool("scontrol", "hold", _job(runner, handle))
    time.sleep(17)
    cluster.tool("scontrol", "release", _job(runner, handle))
    status = _end(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    replica = status.roles[0].replicas[0]
    assert replica.end_time - replica.earlier[0].start_time > 17


def test_what_slurm_is_told_of_a_segment(runner: Runner, shell_app: ShellApp) -> None:
    """The queue gives the segment, not the whole time."""
    app = shell_app("true", notice=Notice(300), timeout=3 * 86400.0)
    app.segment = 12 * 3600.0
    text = str(runner.dryrun(app, "slurm"))
    assert "--time=720\n" in text and "--requeue" in text


@pytest.mark.slow
def test_a_refused_requeue_is_a_failure_in_slurms_words(
    runner: Runner, shell_app: ShellApp, tmp_path: Path
) -> None:
    """A job whose requeue is refused says why it cannot go on."""
    tool = tmp_path / "bin" / "scontrol"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\n[ $1 != requeue ] || { echo 'Job is not allowed to be requeued' >&2; exit 1; }\n"
        'PATH=${PATH#*:} exec scontrol "$@"\n'
    )
    tool.chmod(0o755)
    app = shell_app(STEPS.format(signal="TERM", steps=999), checkpoints=True, notice=Notice(3))
    app.segment = 6.0
    cfg = {"prologue": f"export PATH={tool.parent}:$PATH"}
    status = _end(runner, runner.run(app, "slurm", cfg))
    assert status.state is AppState.FAILED
    assert "scontrol requeue: Job is not allowed to be requeued" in status.msg


def test_a_cancel_between_two_segments(
    runner: Runner, shell_app: ShellApp, eventually: Any
) -> None:
    """A job cancelled while it waits for its next segment starts nothing any more."""
    app = shell_app(STEPS.format(signal="TERM", steps=999), checkpoints=True, notice=Notice(2))
    app.segment = 4.0
    handle = runner.run(app, "slurm")
    eventually(lambda: "interrupted (segment)" in _status(runner, handle).msg, 60)
    eventually(lambda: _status(runner, handle).state is AppState.PENDING, 60)
    runner.cancel(handle)
    status = _end(runner, handle)
    assert status.state is AppState.CANCELLED
    assert status.msg.startswith("cancelled on request of ")
    assert [line for line in _lines(runner, handle) if line.startswith("attempt")] == [
        "attempt 0 0"
    ]


@pytest.mark.slow
def test_segments_of_several(runner: Runner) -> None:
    """A job of several roles goes on as a whole. What has ended well under REPLICA has ended."""
    script = STEPS.format(signal="USR1", steps='"$1"').replace(
        "cd ", "mkdir -p $TRANSLOAD_CHECKPOINT_DIR/$2; cd ", 1
    )
    script = script.replace('"$TRANSLOAD_CHECKPOINT_DIR" ||', '"$TRANSLOAD_CHECKPOINT_DIR/$2" ||')

    def role(name: str, steps: str) -> Role:
        return Role(
            name,
            "/tmp",
            entrypoint="sh",
            args=["-c", script, "sh", steps, "${replica_id}"],
            retry_policy=RetryPolicy.REPLICA,
            notice=Notice(4, "USR1"),
            checkpoints=True,
        )

    app = AppDef("test", [role("main", "25"), role("other", "2")], segment=9.0)
    handle = runner.run(app, "slurm")
    status = _end(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    attempts = [line for line in _lines(runner, handle, "other") if line.startswith("attempt")]
    assert attempts == ["attempt 0 0"]
    assert _causes(status) == ["segment"]


# -- pre-emption, nodes, requests


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["low", "graceful", "cancelling"])
def test_preempted(
    preempting: Runner,
    preempting_cluster: Any,
    shell_app: ShellApp,
    eventually: Any,
    partition: str,
) -> None:
    """A job whose nodes Slurm takes goes on from its checkpoint, without spending a retry.

    With a time of grace Slurm's TERM is the notice, even where Slurm would cancel the job after it.
    """
    app = shell_app(STEPS.format(signal="TERM", steps=40), checkpoints=True, notice=Notice(10))
    cfg = {"partition": partition, "exclusive": True, "nodelist": "node1"}
    handle = preempting.run(app, "slurm", cfg)
    _says(preempting, handle, "attempt 0 0", eventually)
    time.sleep(1)
    preempting_cluster.tool(
        "sbatch", "-p", "high", "-w", "node1", "--exclusive", "-o", "/dev/null", "--wrap=sleep 3"
    )
    status = _end(preempting, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert _causes(status) == ["preempted"]
    assert status.num_restarts == 0
    lines = _lines(preempting, handle)
    assert [line for line in lines if line.startswith("attempt")] == ["attempt 0 0", "attempt 0 1"]
    assert ("noticed" in lines) or partition == "low"


def test_another_signal_where_jobs_are_preempted(preempting: Runner, shell_app: ShellApp) -> None:
    """A notice by another signal than Slurm's TERM is refused by name where jobs are pre-empted."""
    app = shell_app("true", notice=Notice(10, "USR1"))
    with pytest.raises(UnsupportedFeature, match=r"^roles\[0\]\.notice\.signal=USR1: ") as caught:
        preempting.run(app, "slurm", {"partition": "graceful"}, app_id="refused")
    assert caught.value.field == "roles[0].notice.signal"
    assert "use TERM, or a partition that is not pre-empted" in str(caught.value)
    assert preempting.scheduler("slurm").describe(["refused"])["refused"] is None
    handle = preempting.run(app, "slurm", {"partition": "high"})
    assert _end(preempting, handle).state is AppState.SUCCEEDED


@pytest.mark.slow
def test_the_site_sends_the_users_signal(
    preempting: Runner, preempting_cluster: Any, shell_app: ShellApp, eventually: Any
) -> None:
    """Then any signal is the notice of a pre-emption, and TERM does not come before it."""
    preempting_cluster.reconfigure(SlurmctldParameters="preempt_send_user_signal")
    try:
        line = STEPS.format(signal="USR2", steps=40)
        app = shell_app(line, checkpoints=True, notice=Notice(10, "USR2"))
        cfg = {"partition": "graceful", "exclusive": True, "nodelist": "node1"}
        handle = preempting.run(app, "slurm", cfg)
        _says(preempting, handle, "attempt 0 0", eventually)
        time.sleep(1)
        command = ("-p", "high", "-w", "node1", "--exclusive", "-o", "/dev/null", "--wrap=sleep 3")
        preempting_cluster.tool("sbatch", *command)
        status = _end(preempting, handle)
    finally:
        del preempting_cluster.settings["SlurmctldParameters"]
        preempting_cluster.reconfigure()
    assert status.state is AppState.SUCCEEDED, status
    assert _causes(status) == ["preempted"]
    assert "noticed" in _lines(preempting, handle)


@pytest.mark.slow
def test_a_lost_node(
    preempting: Runner, preempting_cluster: Any, shell_app: ShellApp, eventually: Any
) -> None:
    """A node that dies with its keeper is told from a failure by the missing word."""
    app = shell_app(STEPS.format(signal="TERM", steps=40), checkpoints=True)
    handle = preempting.run(app, "slurm", {"nodelist": "node2"})
    _says(preempting, handle, "attempt 0 0", eventually)
    time.sleep(1)
    preempting_cluster.kill("node2")
    eventually(lambda: _status(preempting, handle).state is AppState.PENDING, 60)
    preempting_cluster.start_node("node2")
    status = _end(preempting, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert (_causes(status), status.num_restarts) == (["node"], 0)


@pytest.mark.slow
@pytest.mark.parametrize(("drained", "cause"), [(False, "requested"), (True, "drained")])
def test_somebody_has_it_begin_again(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Any,
    drained: bool,
    cause: str,
) -> None:
    """``scontrol requeue`` by a person, perhaps since the node is to be taken out of service."""
    app = shell_app(STEPS.format(signal="TERM", steps=30), checkpoints=True)
    handle = runner.run(app, "slurm", {"nodelist": "node1"} if not drained else {})
    _says(runner, handle, "attempt 0 0", eventually)
    node = cluster.tool("squeue", "-h", "-o", "%N", "-j", _job(runner, handle)).strip()
    try:
        if drained:
            cluster.tool("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
        cluster.tool("scontrol", "requeue", _job(runner, handle))
        status = _end(runner, handle)
    finally:
        if drained:
            cluster.tool("scontrol", "update", f"nodename={node}", "state=resume")
    assert status.state is AppState.SUCCEEDED, status
    assert (_causes(status), status.num_restarts) == ([cause], 0)


# -- what is no interruption


# -- notices


SAVES = "trap 'echo saved; exit 0' {signal}; echo ready; while :; do sleep 0.1; done"


@pytest.mark.slow
def test_a_notice_before_slurms_own_limit(runner: Runner, shell_app: ShellApp) -> None:
    """A limit that only Slurm knows is asked for, and warned of."""
    app = shell_app(SAVES.format(signal="USR2"), notice=Notice(45, "USR2"))
    handle = runner.run(app, "slurm", {"time": "1"})
    status = _end(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert _lines(runner, handle) == ["ready", "saved"]


def test_bad_combinations(runner: Runner, shell_app: ShellApp) -> None:
    """What cannot go with a segment is refused by name, before anything starts."""
    app = shell_app("true", notice=Notice(5))
    app.segment = 60.0
    with pytest.raises(ConfigError, match="run option time=10: not with a segment"):
        runner.dryrun(app, "slurm", {"time": "10"})
    with pytest.raises(ConfigError, match="run option requeue=false: not with a segment"):
        runner.dryrun(app, "slurm", {"requeue": False})
