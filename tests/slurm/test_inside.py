"""Signals and commands reach replicas on their nodes, here and by ssh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from transload.runner import Job, Runner
from transload.specs import AppDef, AppState, Role

Eventually = Callable[..., Any]

HEEDS = "trap 'echo got it' USR1; echo up; while :; do sleep 0.1; done"
SAYS = 'echo "$TRANSLOAD_ROLE $TRANSLOAD_REPLICA_ID $OWN"; exit 7'


def _role(name: str, replicas: int) -> Role:
    return Role(
        name,
        "",
        entrypoint="sh",
        args=["-c", HEEDS],
        num_replicas=replicas,
        env={"OWN": f"of-{name}"},
    )


def _running(job: Job) -> int:
    status = job.status()
    assert status is not None
    states = [replica.state for role in status.roles for replica in role.replicas]
    return states.count(AppState.RUNNING)


def _try_both(runner: Runner, eventually: Eventually) -> None:
    """Submit a job of two roles, one with replicas on two nodes, and reach each replica."""
    app = AppDef("inside", [_role("one", 1), _role("two", 2)])
    job = runner.job(runner.run(app, "slurm"))
    try:
        eventually(lambda: len([line for line in job.logs(follow=False) if "up" in line]) == 3, 60)
        eventually(lambda: _running(job) == 3, 30)  # the status may come after the first lines
        for role, k in (("one", 0), ("two", 0), ("two", 1)):
            done = job.exec(["sh", "-c", SAYS], role, k, capture=True)
            assert (done.returncode, done.stdout) == (7, f"{role} {k} of-{role}\n".encode())
        assert list(job.signal("USR1", "two", 1)) == [("two", 1)]
        eventually(lambda: "two/1 got it\n" in list(job.logs(follow=False)), 30)
        assert "two/0 got it\n" not in list(job.logs(follow=False))
        assert len(job.signal("USR1")) == 3
        eventually(lambda: "two/0 got it\n" in list(job.logs(follow=False)), 30)
    finally:
        job.delete()


@pytest.mark.usefixtures("cluster")
def test_two_roles_on_several_nodes(runner: Runner, eventually: Eventually) -> None:
    """Each replica of a heterogeneous job is found, on whichever node it is."""
    _try_both(runner, eventually)


def test_by_ssh(far: Runner, eventually: Eventually) -> None:
    """From a machine without Slurm, ssh carries the command, its output and its exit code."""
    _try_both(far, eventually)
