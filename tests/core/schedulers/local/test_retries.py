"""Retries start again what they should, as often as they may, and are counted."""

from __future__ import annotations

import json
import os
import sys

import pytest

from transload.components.builtin import utils
from transload.specs import NONE, AppState, RetryPolicy, Role

# Replica 1 fails until its third attempt. All note each of their attempts.
FLAKY = """
echo attempt $TRANSLOAD_RETRY
[ "$TRANSLOAD_REPLICA_ID" = 1 ] && [ "$TRANSLOAD_RETRY" -lt 2 ] && exit 3
[ "$TRANSLOAD_REPLICA_ID" = 1 ] || sleep 0.2
exit 0
"""


def attempts(local, app_id: str, role: str = "main") -> list[int]:
    """Return how many attempts each replica of a role has noted."""
    count = len(next(r for r in local.status(app_id).roles if r.role == role).replicas)
    return [len(local.log(app_id, role, k)) for k in range(count)]


def test_by_replica(local) -> None:
    """REPLICA starts the failed replica alone."""
    app_id = local.run(
        local.sh(FLAKY, num_replicas=3, max_retries=2, retry_policy=RetryPolicy.REPLICA)
    )
    status = local.wait(app_id)
    assert status.state is AppState.SUCCEEDED and status.num_restarts == 2
    assert [replica.restarts for replica in status.roles[0].replicas] == [0, 2, 0]
    assert attempts(local, app_id) == [1, 3, 1]
    flaky = status.roles[0].replicas[1]
    assert [(each.state, each.exit_code) for each in flaky.earlier] == [(AppState.FAILED, 3)] * 2
    times = [
        moment for each in [*flaky.earlier, flaky] for moment in (each.start_time, each.end_time)
    ]
    assert None not in times and times == sorted(times)
    assert status.roles[0].replicas[0].earlier == []


def test_by_role(local) -> None:
    """ROLE starts all replicas of the role, and other roles go on."""
    flaky = local.sh(FLAKY, "flaky", num_replicas=2, max_retries=2, retry_policy=RetryPolicy.ROLE)
    steady = local.sh("echo attempt; sleep 0.5", "steady")
    app_id = local.run(local.app(flaky, steady))
    status = local.wait(app_id)
    assert status.state is AppState.SUCCEEDED and status.num_restarts == 2
    assert [replica.restarts for replica in status.roles[0].replicas] == [2, 2]
    assert attempts(local, app_id, "steady") == [1]
    assert attempts(local, app_id, "flaky")[1] == 3


def test_by_application(local) -> None:
    """APPLICATION starts everything."""
    flaky = local.sh(FLAKY, "flaky", num_replicas=2, max_retries=2)
    steady = local.sh("echo attempt; sleep 0.3", "steady")
    app_id = local.run(local.app(flaky, steady))
    status = local.wait(app_id)
    assert status.state is AppState.SUCCEEDED and status.num_restarts == 2
    assert [replica.restarts for role in status.roles for replica in role.replicas] == [2, 2, 2]
    assert [len(replica.earlier) for role in status.roles for replica in role.replicas] == [2, 2, 2]


@pytest.mark.parametrize("policy", [RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION])
def test_used_up(local, policy: RetryPolicy) -> None:
    """When the retries are used up the app is FAILED, after exactly 1 + max_retries attempts."""
    app_id = local.run(
        local.sh("echo attempt $TRANSLOAD_RETRY; exit 3", max_retries=2, retry_policy=policy)
    )
    status = local.wait(app_id)
    assert status.state is AppState.FAILED and status.num_restarts == 2
    assert status.roles[0].replicas[0].exit_code == 3
    assert local.log(app_id) == ["attempt 0\n", "attempt 1\n", "attempt 2\n"]


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
    local.scheduler.cancel(app_id)
    status = local.wait(app_id)
    assert status.state is AppState.CANCELLED
    count = len(local.log(app_id, regex="attempt"))
    assert count <= status.num_restarts + 1


def test_unfinished_line_of_an_attempt(local) -> None:
    """The next attempt's first line is a line of its own."""
    app_id = local.run(local.sh("printf 'no newline %s' $TRANSLOAD_RETRY; exit 3", max_retries=1))
    local.wait(app_id)
    assert local.log(app_id) == ["no newline 0\n", "no newline 1"]


def test_what_a_replica_says_of_its_failure(local) -> None:
    """The error file of the first failed replica explains the job. The next attempt has none."""
    script = """
    [ -e "$TRANSLOAD_ERROR_FILE" ] && echo stale
    [ "$TRANSLOAD_REPLICA_ID" = 0 ] && exec sleep 300
    echo '{"message": {"message": "ValueError: attempt '$TRANSLOAD_RETRY'"}}' > "$TORCHELASTIC_ERROR_FILE"
    exit 1
    """
    app_id = local.run(
        local.sh(script, num_replicas=2, max_retries=1, retry_policy=RetryPolicy.REPLICA)
    )
    status = local.wait(app_id)
    assert status.msg == "role 'main', replica 1 failed (exit code 1): ValueError: attempt 1"
    said = json.loads(status.structured_error_msg)
    assert said == {"message": {"message": "ValueError: attempt 1"}}
    assert json.loads(status.roles[0].replicas[1].structured_error_msg) == said
    assert status.roles[0].replicas[0].structured_error_msg == NONE
    assert local.log(app_id, k=1) == []


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
