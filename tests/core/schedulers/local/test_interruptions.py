"""Notices, segments and interruptions warn, start again and count as they should."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from transload.runner import get_runner
from transload.specs import AppState, Notice, RetryPolicy

LOOP = "while :; do sleep 0.02; done"

# Notes its attempt, and the notice, and ends with 75 until its third run.
POLITE = f"""
echo run $TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS
[ "$TRANSLOAD_INTERRUPTIONS" -ge 2 ] && exit 0
trap 'echo noticed; echo x >> $TRANSLOAD_CHECKPOINT_DIR/steps; exit 75' USR1
{LOOP}
"""


def replica(status, role: int = 0, k: int = 0):
    """Return the status of a replica."""
    return status.roles[role].replicas[k]


def causes(status) -> list[str | None]:
    """Return why the earlier attempts of the first replica ended."""
    return [each.cause for each in replica(status).earlier]


def test_work_goes_on_in_further_segments(local) -> None:
    """At the end of a segment the job gets its notice, and goes on without spending a retry."""
    role = local.sh(POLITE, notice=Notice(2, "USR1"), checkpoints=True)
    app = local.app(role, timeout=60.0)
    app.segment = 2.5
    app_id = local.run(app, checkpoints="job")
    status = local.wait(app_id)
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 0), status
    assert (replica(status).restarts, replica(status).interruptions) == (0, 2)
    assert causes(status) == ["segment", "segment"]
    assert local.log(app_id) == ["run 0 0\n", "noticed\n", "run 0 1\n", "noticed\n", "run 0 2\n"]


def test_what_does_not_end_after_its_notice_is_killed(local) -> None:
    """When the segment is over everything is killed, children in other sessions included, and
    begins the next one.
    """
    script = f"""
    [ "$TRANSLOAD_INTERRUPTIONS" = 1 ] && exit 0
    trap 'echo noticed' TERM
    setsid sh -c 'trap "" TERM; echo $$; {LOOP}' &
    {LOOP}
    """
    app = local.app(local.sh(script, notice=Notice(0.5)), timeout=60.0)
    app.segment = 1.0
    app_id = local.run(app)
    pid = int(local.line(app_id, ""))
    status = local.wait(app_id)
    assert status.state is AppState.SUCCEEDED, status
    assert causes(status) == ["segment"]
    assert replica(status).earlier[0].exit_code == -9
    assert not local.alive(pid)
    assert local.log(app_id)[1] == "noticed\n"


def test_segments_that_come_to_nothing_end_the_job(local) -> None:
    """Five ends of segments in a row without a new checkpoint are a failure, and say so."""
    script = f"trap 'exit 75' USR1; {LOOP}"
    role = local.sh(script, notice=Notice(0.1, "USR1"), checkpoints=True)
    app = local.app(role, timeout=60.0)
    app.segment = 0.3
    status = local.wait(local.run(app, checkpoints="job"))
    assert status.state is AppState.FAILED
    assert "without a new checkpoint or a larger step" in status.msg
    assert replica(status).interruptions == 4


def test_interruptions_are_bounded(local) -> None:
    """``max_interruptions`` is kept to, and the message counts."""
    script = f"trap 'exit 75' USR1; {LOOP}"
    role = local.sh(script, notice=Notice(0.1, "USR1"), max_interruptions=1)
    app = local.app(role, timeout=60.0)
    app.segment = 0.4
    app_id = local.run(app)
    again = local.wait(app_id, lambda status: "started again" in status.msg)
    assert "was interrupted (segment)" in again.msg
    assert "started again, 1st of 1" in again.msg
    status = local.wait(app_id)
    assert (status.state, replica(status).interruptions) == (AppState.FAILED, 1)
    assert "its 1 interruptions are used up" in status.msg


def test_75_without_a_notice_is_a_failure(local) -> None:
    """Exit code 75 means something only after a notice that was delivered."""
    role = local.sh("exit 75", notice=Notice(5), checkpoints=True, max_retries=1, retry_delay=0.0)
    status = local.wait(local.run(role))
    assert (status.state, status.num_restarts) == (AppState.FAILED, 1)
    assert replica(status).interruptions == 0
    assert causes(status) == ["failed"]
    assert "exit code 75" in status.msg


def test_notice_before_the_time_limit(local) -> None:
    """The notice comes before the limit, once, and the end is the limit, whatever the job does."""
    script = f"trap 'echo noticed' USR1; echo up; {LOOP}"
    app = local.app(local.sh(script, notice=Notice(0.5, "USR1"), max_retries=3), timeout=1.2)
    app_id = local.run(app)
    began = time.monotonic()
    status = local.wait(app_id)
    assert time.monotonic() - began < 4
    assert (status.state, status.msg) == (AppState.FAILED, "timed out after 1.2 s")
    assert local.log(app_id)[:2] == ["up\n", "noticed\n"]


@pytest.mark.parametrize("end", ["exit 75", "exit 0", "exit 3", "trap - USR1; kill -USR1 $$"])
def test_what_ends_after_the_notice_of_its_limit(local, end: str) -> None:
    """Who obeys timed out all the same, without a retry. Who is done is done."""
    script = f"trap '{end}' USR1; echo up; {LOOP}"
    app = local.app(local.sh(script, notice=Notice(20, "USR1"), max_retries=3), timeout=20.5)
    status = local.wait(local.run(app), timeout=15)
    if end == "exit 0":
        assert status.state is AppState.SUCCEEDED
        return
    assert (status.state, status.num_restarts) == (AppState.FAILED, 0)
    reason = "timed out after 20.5 s"
    if end == "exit 3":
        reason = "role 'main', replica 0 failed (exit code 3)"
    assert status.msg == reason


def test_notice_of_a_cancel(local) -> None:
    """A cancel is one signal to the main process alone, whose children go on until it has ended."""
    child = (
        "trap 'echo child ended' TERM; trap 'echo child noticed' USR1; while :; do sleep 0.02; done"
    )
    script = f"""
    trap 'echo noticed; sleep 0.3; echo saved; exit 75' USR1
    sh -c "{child}" & echo up
    {LOOP}
    """
    app_id = local.run(local.sh(script, notice=Notice(30, "USR1")))
    local.line(app_id, "up")
    local.scheduler.cancel(app_id)
    status = local.wait(app_id, timeout=20)
    assert status.state is AppState.CANCELLED
    assert replica(status).exit_code == 75
    lines = local.log(app_id)
    assert lines[:3] == ["up\n", "noticed\n", "saved\n"]
    assert "child noticed\n" not in lines


def test_each_role_has_the_time_of_its_own_notice(local) -> None:
    """At a cancel one role is killed after its short notice, another one after its long one."""
    stubborn = f"trap '' TERM; echo up; {LOOP}"
    short = local.sh(stubborn, "short", notice=Notice(0.2))
    long = local.sh(f"trap 'sleep 1; exit 0' TERM; echo up; {LOOP}", "long", notice=Notice(60))
    app_id = local.run(local.app(short, long))
    for role in ("short", "long"):
        local.line(app_id, "up", role)
    local.scheduler.cancel(app_id)
    status = local.wait(app_id, timeout=20)
    assert (replica(status).exit_code, replica(status, 1).exit_code) == (-9, 0)
    assert replica(status).end_time < replica(status, 1).end_time


def test_supervisor_killed_in_the_middle_of_a_notice(local) -> None:
    """No process is left, whatever the notice still allowed, and the state becomes true."""
    script = f"trap 'echo noticed' TERM; echo $$; {LOOP}"
    app_id = local.run(local.sh(script, notice=Notice(300)))
    pid = int(local.line(app_id, ""))
    local.scheduler.cancel(app_id)
    local.line(app_id, "noticed")
    os.kill(local.supervisor(app_id), signal.SIGKILL)
    status = local.wait(app_id, timeout=30)
    assert status.state is AppState.FAILED
    assert "its supervisor died" in status.msg
    assert status.cancel_requested
    assert not local.alive(pid)


def test_segments_without_a_notice(local) -> None:
    """A role that may be interrupted, but wants no notice, is ended as always, and goes on."""
    script = f"[ $TRANSLOAD_INTERRUPTIONS = 1 ] && exit 0; echo up; {LOOP}"
    app = local.app(local.sh(script, max_interruptions=1), timeout=60.0)
    app.segment = 0.5
    status = local.wait(local.run(app))
    assert status.state is AppState.SUCCEEDED, status
    assert causes(status) == ["segment"]
    assert replica(status).earlier[0].exit_code == -15


def test_cancel_in_the_middle_of_a_segments_notice(local) -> None:
    """A cancel while the job saves for its next segment leaves it without one."""
    script = f"trap 'echo noticed; sleep 0.5; exit 75' USR1; echo up; {LOOP}"
    app = local.app(local.sh(script, notice=Notice(20, "USR1")), timeout=300.0)
    app.segment = 20.2
    app_id = local.run(app)
    local.line(app_id, "noticed")
    local.scheduler.cancel(app_id)
    status = local.wait(app_id, timeout=20)
    assert (status.state, replica(status).interruptions) == (AppState.CANCELLED, 0)
    assert local.log(app_id).count("noticed\n") == 1


def test_a_gang_in_segments(local) -> None:
    """Replicas that have ended well stay so where each is tried alone. Others go on together."""
    script = f"""
    [ $TRANSLOAD_REPLICA_ID = 0 ] && exit 0
    [ $TRANSLOAD_INTERRUPTIONS = 1 ] && exit 0
    trap 'exit 75' USR1; {LOOP}
    """
    role = local.sh(
        script, num_replicas=3, notice=Notice(0.5, "USR1"), retry_policy=RetryPolicy.REPLICA
    )
    app = local.app(role, timeout=60.0)
    app.segment = 1.0
    status = local.wait(local.run(app))
    assert status.state is AppState.SUCCEEDED, status
    assert [each.interruptions for each in status.roles[0].replicas] == [0, 1, 1]


def test_a_stopped_job_gets_its_notice(local) -> None:
    """What is stopped is woken by its notice, so that it can save."""
    app_id = local.run(
        local.sh(f"trap 'echo saved; exit 0' TERM; echo $$; {LOOP}", notice=Notice(60))
    )
    os.kill(int(local.line(app_id, "")), signal.SIGSTOP)
    local.scheduler.cancel(app_id)
    assert local.wait(app_id, timeout=20).state is AppState.CANCELLED
    assert local.log(app_id)[1:] == ["saved\n"]


REPORTS = """
import os, signal, sys, time
from transload.runtime import report
run = int(os.environ["TRANSLOAD_RETRY"]) + int(os.environ["TRANSLOAD_INTERRUPTIONS"])
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
first = run == 0
for step in range(0, 4) if first else range(2, 3):
    report(step=step, loss=10.0 * run + step)
if first:
    report(only_first=1)
    with open(os.environ["TRANSLOAD_TRACKER_BASE"] + "/other.json", "w") as file:
        file.write('{"schema": 1, "results": {"by_hand": 5}}')
    print("up", flush=True)
    if sys.argv[1] == "fail":
        sys.exit(3)
    time.sleep(300)
"""


@pytest.mark.parametrize("how", ["interrupt", "fail"])
def test_results_after_an_interruption_are_merged(local, how: str) -> None:
    """After an interruption older results stay, newer ones win, and steps replace older ones.

    After a failure the last attempt's count.
    """
    role = local.sh(
        f'exec {sys.executable} -c "$1" {how}',
        "main",
        REPORTS,
        notice=Notice(0.5, "USR1"),
        max_retries=1,
        retry_delay=0.1,
    )
    app = local.app(role, timeout=60.0)
    app.segment = 3.0
    with get_runner("tests") as runner:
        handle = runner.run(app, "local")
        status = runner.wait(handle, timeout=60)
        assert status.state is AppState.SUCCEEDED, status
        found = runner.results(handle).results
        steps = runner.steps(handle)
    assert steps["0"]["loss"] == {0.0: 0.0, 1.0: 1.0, 2.0: 12.0}
    if how == "fail":
        assert found == {"0": {"loss": 12.0}}
    else:
        assert found == {"0": {"loss": 12.0, "only_first": 1}, "other": {"by_hand": 5}}
