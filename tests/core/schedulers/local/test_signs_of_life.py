"""Progress that a job reports, and replicas that have stalled."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from transload.specs import AppState, Progress

REPORT = 'report() { echo "$1" > "$TRANSLOAD_PROGRESS_FILE"; }\n'


def progress(status) -> Progress:
    """Return the progress of a job that has reported some."""
    assert status.progress is not None
    return status.progress


def test_progress_leaves_the_job_once_a_second_at_most(local) -> None:
    """However often a job reports, its states grow by one a second."""
    script = f"""{REPORT}
    i=0; while [ $i -lt 300 ]; do i=$((i+1)); report "{{\\"step\\": $i}}"; sleep 0.01; done
    """
    app_id = local.run(local.sh(script))
    status = local.wait(app_id)
    assert progress(status).step == 300
    states = (local.folder(app_id) / "states.jsonl").read_bytes().splitlines()
    replica = status.roles[0].replicas[0]
    assert len(states) <= 5 + (replica.end_time - replica.start_time)


# A handler as faulthandler's: written at once, whatever the program is waiting for.
STUCK = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1)
print("up", flush=True)
def the_place_where_it_hangs():
    time.sleep(300)
the_place_where_it_hangs()
"""


def stuck(local, **fields: object):
    """Return a role that hangs, and writes its stacks when it is asked to."""
    return local.sh(f'exec {sys.executable} -c "$1"', "main", STUCK, **fields)


def test_stacks_of_what_has_stalled(local) -> None:
    """With ``dump`` the stacks of the program stand in its log, which is no sign of life."""
    app_id = local.run(stuck(local, stall_after=0.5, on_stall="dump"))
    assert local.line(app_id, "in the_place_where_it_hangs")
    status = local.status(app_id)
    assert "stalled" in status.msg
    assert status.state is AppState.RUNNING


def test_what_cannot_write_its_stacks_is_not_killed(local) -> None:
    """A program without a handler for the signal is not sent it, which would end it."""
    app_id = local.run(local.sh("exec sleep 300", stall_after=0.3, on_stall="dump"))
    local.wait(app_id, lambda status: "stalled" in status.msg, 20)
    local.scheduler.cancel([app_id])
    status = local.wait(app_id)
    assert status.roles[0].replicas[0].exit_code == -signal.SIGTERM


@pytest.mark.parametrize("sign", ["progress", "log", "result", "checkpoint"])
def test_signs_of_life(local, sign: str) -> None:
    """Each kind of sign by itself keeps a replica from being called stalled."""
    results = local.home / "results"
    results.mkdir()
    lines = {
        "progress": 'echo "{\\"step\\": $i}" > $TRANSLOAD_PROGRESS_FILE',
        "log": "echo $i",
        "result": f"echo $i > {results}/$i",
        "checkpoint": "echo $i > $TRANSLOAD_CHECKPOINT_DIR/$i",
    }
    script = f"i=0; while [ $i -lt 12 ]; do i=$((i+1)); {lines[sign]}; sleep 0.2; done"
    role = local.sh(
        script,
        stall_after=1.0,
        checkpoints=True,
        env={"TRANSLOAD_TRACKER_BASE": str(results)},
    )
    app_id = local.run(role, checkpoints="job")
    assert local.wait(app_id).state is AppState.SUCCEEDED
    assert "stalled" not in (local.folder(app_id) / "states.jsonl").read_text()


BAR = "\\rEpoch 3:  45%|####5     | 9/20 [00:10<00:12,  1.1it/s]"


@pytest.mark.parametrize("stream", [1, 2])
def test_a_progress_bar_counts_where_nothing_else_says_it(local, stream: int) -> None:
    """The latest bar of tqdm is the progress, of the latest attempt alone."""
    first = "if [ $TRANSLOAD_RETRY = 0 ]; then printf '100%%|##########| 20/20 [00:10<00:00]'; exit 1; fi"
    bar = BAR.replace("%", "%%")
    script = f"exec >&{stream}; {first}; echo begins; sleep 1.5; printf '{bar}'; exec sleep 300"
    app_id = local.run(local.sh(script, max_retries=1, retry_delay=0))
    status = local.wait(app_id, lambda status: status.progress and status.progress.step == 9, 20)
    said = progress(status)
    assert (said.fraction, said.total, said.text) == (0.45, 20, "Epoch 3")


def test_a_report_counts_more_than_a_bar(local) -> None:
    """Where a program reports its progress, nobody looks at its bars."""
    bar = BAR.replace("%", "%%")
    script = f"{REPORT}printf '{bar}'; report '{{\"step\": 4}}'; sleep 1.5; printf '{bar}'; exit 0"
    app_id = local.run(local.sh(script))
    assert progress(local.wait(app_id)).step == 4


def test_frozen_keeper_sees_no_stall(local, eventually) -> None:
    """The time in which the keeper itself was held up is not counted."""
    script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i; sleep 0.1; done"
    app_id = local.run(local.sh(script, stall_after=1.0))
    local.line(app_id, "5")
    keeper = local.keeper(app_id)
    replica = local.status(app_id)
    assert replica.state is AppState.RUNNING
    os.kill(keeper, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(keeper, signal.SIGCONT)
    assert local.wait(app_id).state is AppState.SUCCEEDED
    assert "stalled" not in (local.folder(app_id) / "states.jsonl").read_text()
