"""Notices, segments and interruptions warn, start again and count as they should."""

from __future__ import annotations

import os
import signal
import sys

from transload.runner import get_runner
from transload.specs import AppState, Notice

LOOP = "while :; do sleep 0.02; done"


def replica(status, role: int = 0, k: int = 0):
    """Return the status of a replica."""
    return status.roles[role].replicas[k]


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
    local.scheduler.cancel([app_id])
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
    local.scheduler.cancel([app_id])
    status = local.wait(app_id, timeout=20)
    assert (replica(status).exit_code, replica(status, 1).exit_code) == (-9, 0)
    assert replica(status).end_time < replica(status, 1).end_time


def test_keeper_killed_in_the_middle_of_a_notice(local) -> None:
    """No process is left, whatever the notice still allowed, and the state becomes true."""
    script = f"trap 'echo noticed' TERM; echo $$; {LOOP}"
    app_id = local.run(local.sh(script, notice=Notice(300)))
    pid = int(local.line(app_id, ""))
    local.scheduler.cancel([app_id])
    local.line(app_id, "noticed")
    os.kill(local.keeper(app_id), signal.SIGKILL)
    status = local.wait(app_id, timeout=30)
    assert status.state is AppState.FAILED
    assert "its keeper died" in status.msg
    assert status.cancel_requested
    assert not local.alive(pid)


def test_cancel_in_the_middle_of_a_segments_notice(local) -> None:
    """A cancel while the job saves for its next segment leaves it without one."""
    script = f"trap 'echo noticed; sleep 0.5; exit 75' USR1; echo up; {LOOP}"
    app = local.app(local.sh(script, notice=Notice(20, "USR1")), timeout=300.0)
    app.segment = 20.2
    app_id = local.run(app)
    local.line(app_id, "noticed")
    local.scheduler.cancel([app_id])
    status = local.wait(app_id, timeout=20)
    assert (status.state, replica(status).interruptions) == (AppState.CANCELLED, 0)
    assert local.log(app_id).count("noticed\n") == 1


def test_a_stopped_job_gets_its_notice(local) -> None:
    """What is stopped is woken by its notice, so that it can save."""
    app_id = local.run(
        local.sh(f"trap 'echo saved; exit 0' TERM; echo $$; {LOOP}", notice=Notice(60))
    )
    os.kill(int(local.line(app_id, "")), signal.SIGSTOP)
    local.scheduler.cancel([app_id])
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
    time.sleep(300)
"""


def test_results_after_an_interruption_are_merged(local) -> None:
    """After an interruption older results stay, newer ones win, and steps replace older ones."""
    role = local.sh(
        f'exec {sys.executable} -c "$1"',
        "main",
        REPORTS,
        notice=Notice(0.5, "USR1"),
    )
    app = local.app(role, timeout=60.0)
    app.segment = 3.0
    with get_runner("tests") as runner:
        handle = runner.run(app, "local")
        status = runner.wait(handle, timeout=60)
        assert status.state is AppState.SUCCEEDED, status
        found = runner.results(handle).results
        steps = runner.job(handle).steps()
    assert steps["0"]["loss"] == {0.0: 0.0, 1.0: 1.0, 2.0: 12.0}
    assert found == {"0": {"loss": 12.0, "only_first": 1}, "other": {"by_hand": 5}}
