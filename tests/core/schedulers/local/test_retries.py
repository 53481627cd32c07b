"""Retries start again what they should, as often as they may, and are counted."""

from __future__ import annotations

import os
import sys

import pytest

from transload.components import utils
from transload.specs import AppState, RetryPolicy, Role


def test_leftovers_of_an_attempt_are_ended_first(local) -> None:
    """What a failed attempt left running (in another session) is ended before the next one
    starts.
    """
    script = (
        'if [ "$TRANSLOAD_RETRY" = 0 ]; then setsid sleep 300 & echo $!; exit 3; fi; echo second'
    )
    role = local.sh(script, max_retries=1, retry_policy=RetryPolicy.REPLICA)
    other = local.sh("sleep 300", "other")
    app_id = local.run(local.app(role, other))
    local.line(app_id, "second")
    assert not local.alive(int(local.log(app_id)[0]))


def test_pending_in_between(local) -> None:
    """While everything is being started again the job is PENDING, then RUNNING again."""
    fifo = local.home / "go"
    os.mkfifo(fifo)
    script = f"trap 'sleep 0.4; exit 1' TERM; [ $TRANSLOAD_RETRY = 0 ] && exit 3; read x < {fifo}"
    app_id = local.run(local.sh(script, max_retries=1))
    status = local.wait(
        app_id, lambda status: status.num_restarts == 1 and status.state is AppState.RUNNING
    )
    assert "started again" in status.msg
    fifo.write_text("x\n")
    assert local.wait(app_id).state is AppState.SUCCEEDED


def test_no_pending_at_the_end(local) -> None:
    """A job whose leftovers are being ended is RUNNING, never PENDING."""
    stubborn = (
        "setsid sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.05; done' & echo $!; sleep 0.2"
    )
    app_id = local.run(local.sh(stubborn))
    seen = set()
    local.wait(app_id, lambda status: seen.add(status.state) or status.is_terminal())
    assert seen <= {AppState.SUBMITTED, AppState.RUNNING, AppState.SUCCEEDED}


def test_cancel_while_restarting(local) -> None:
    """A cancel in the middle of restarts ends the job, and nothing is started again."""
    app_id = local.run(
        local.sh(
            "echo attempt; sleep 0.02; exit 3",
            max_retries=100_000,
            retry_policy=RetryPolicy.REPLICA,
        )
    )
    local.wait(app_id, lambda status: status.num_restarts > 1)
    local.scheduler.cancel([app_id])
    status = local.wait(app_id)
    assert status.state is AppState.CANCELLED
    count = len(local.log(app_id, regex="attempt"))
    assert count <= status.num_restarts + 1


def test_unfinished_line_of_an_attempt(local) -> None:
    """The next attempt's first line is a line of its own."""
    app_id = local.run(local.sh("printf 'no newline %s' $TRANSLOAD_RETRY; exit 3", max_retries=1))
    local.wait(app_id)
    assert local.log(app_id) == ["no newline 0\n", "no newline 1"]


@pytest.mark.parametrize(("code", "state"), [(1, AppState.FAILED), (0, AppState.SUCCEEDED)])
def test_what_a_thread_dies_of(local, code: int, state: AppState) -> None:
    """A thread's exception ends no program, but explains an exit with 1 without a reason."""
    thread = (
        "import sys, threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()"
    )
    (role,) = utils.python(c=f"{thread}; sys.exit({code})").roles
    status = local.wait(local.run(Role("main", "", entrypoint=sys.executable, args=role.args)))
    assert status.state is state
    assert ("ZeroDivisionError: division by zero" in status.msg) is bool(code)


def test_killed_by_nobody_here(local) -> None:
    """SIGKILL that transload did not send is said to be somebody else's."""
    status = local.wait(local.run(local.sh("kill -9 $$")))
    assert "killed by SIGKILL: transload did not send it" in status.msg
