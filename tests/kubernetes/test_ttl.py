"""With option ttl the cluster removes what is left of a job, however it ended."""

from __future__ import annotations

from typing import Any

import pytest

from transload.errors import ConfigError
from transload.runner import Launch, Runner
from transload.specs import AppState


def left(fake: Any) -> list[str]:
    """Return the names of all Jobs, JobSets and pods."""
    kinds = ("jobs", "jobsets", "pods")
    return [item["metadata"]["name"] for kind in kinds for item in fake.cluster.items(kind)]


@pytest.mark.parametrize(
    ("command", "jobset"), [("sleep 300", "always"), ("trap '' TERM; sleep 300", "never")]
)
def test_a_cancelled_job_goes_too(
    fake: Any, runner: Runner, shell: Any, eventually: Any, jobset: str, command: str
) -> None:
    """A job that was cancelled is removed like one that has ended by itself, and stays known."""
    app = shell(command, replicas=2)
    handle = runner.run(app, "kubernetes", {"ttl": 2, "jobset": jobset})
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, 30)
    runner.cancel(handle)
    status = runner.wait(handle, timeout=30)
    assert status is not None and status.state is AppState.CANCELLED
    assert [each.state for each in status.roles[0].replicas] == [AppState.CANCELLED] * 2
    eventually(lambda: not left(fake), 30)
    assert runner.status(handle).state is AppState.CANCELLED


@pytest.mark.parametrize("ttl", [0, 604_799])
def test_an_orchestrators_job_stays_for_a_week(
    fake: Any, runner: Runner, shell: Any, ttl: int
) -> None:
    """A shorter time is refused before anything is made, since a later try looks for the job."""
    launch = Launch(app=shell("true"), scheduler="kubernetes", cfg={"ttl": ttl})
    with pytest.raises(ConfigError, match=f"ttl={ttl}"):
        launch.plan(runner, asked={"flow": {"task": "load"}}).submit()
    assert not fake.snapshot()
    launch = Launch(app=shell("true"), scheduler="kubernetes", cfg={"ttl": 604_800})
    job = launch.plan(runner, asked={"flow": {"task": "load"}}).submit()
    assert job.wait(timeout=60).state is AppState.SUCCEEDED


def test_a_job_that_never_ran_goes_too(
    fake: Any, runner: Runner, shell: Any, eventually: Any
) -> None:
    """A job that no node takes is removed after its cancel, though nobody waits for it."""
    app = shell("true")
    cfg = {"ttl": 1, "jobset": "never", "node_selector": {"unschedulable": "x"}}
    handle = runner.run(app, "kubernetes", cfg)
    eventually(lambda: fake.cluster.items("pods"), 30)
    runner.cancel(handle)
    eventually(lambda: not left(fake), 30)
    assert runner.status(handle).state is AppState.CANCELLED


def test_the_other_roles_of_a_job_that_failed_go_too(
    fake: Any, runner: Runner, shell: Any, eventually: Any
) -> None:
    """A role that is ended because another one has failed is removed like that one."""
    app = shell({"main": "exit 3", "other": "sleep 300"})
    handle = runner.run(app, "kubernetes", {"ttl": 1, "jobset": "never"})
    status = runner.wait(handle, timeout=30)
    assert status is not None and status.state is AppState.FAILED
    other = status.roles[1].replicas[0]
    assert other.state is AppState.CANCELLED
    eventually(lambda: not left(fake), 30)


def test_roles_that_are_started_again_are_no_ended_ones(
    fake: Any, runner: Runner, shell: Any, eventually: Any
) -> None:
    """A restart of all roles ends those that run, and the job goes on to its own end."""
    from transload.specs import RetryPolicy

    again = 'test "$TRANSLOAD_RETRY" = 1'
    app = shell({"main": f"{again} || exit 3", "other": f"{again} || sleep 300"}, max_retries=1)
    app.roles[0].retry_policy = RetryPolicy.APPLICATION
    handle = runner.run(app, "kubernetes", {"ttl": 2, "jobset": "never"})
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED, status.msg
    eventually(lambda: not left(fake), 30)
