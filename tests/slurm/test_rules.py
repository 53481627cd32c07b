"""What follows from a replica's end, by the rules that run in the job; no process is started."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

import transload_slurm.job
from transload_slurm.job.rules import App, Replica, exit_text


def app(*roles: dict[str, Any], before: dict[str, Any] | None = None) -> App:
    """Return an app with these roles, all of whose replicas run."""
    filled = [
        {
            "name": f"r{i}",
            "num_replicas": 2,
            "min_replicas": None,
            "max_retries": 0,
            "retry_policy": "APPLICATION",
            **role,
        }
        for i, role in enumerate(roles)
    ]
    made = App({"roles": filled}, None, before)
    for replica in made.replicas:
        replica.active = True
        made.started(replica, "host", 1.0)
    return made


def names(replicas: list[Replica]) -> list[tuple[int, int]]:
    """Return (role, number) of each."""
    return [(replica.role, replica.k) for replica in replicas]


@pytest.mark.parametrize(
    ("policy", "again"),
    [
        ("REPLICA", [(0, 1)]),
        ("ROLE", [(0, 0), (0, 1)]),
        ("APPLICATION", [(0, 0), (0, 1), (1, 0), (1, 1)]),
    ],
)
def test_policies(policy: str, again: list[tuple[int, int]]) -> None:
    """A failure starts again what its policy says, as often as there are retries."""
    made = app({"max_retries": 1, "retry_policy": policy}, {})
    failed = made.find(0, 1)
    assert made.ended(failed, 3, 2.0)
    assert names(made.to_restart(failed)) == again
    made.count(failed)
    assert made.to_restart(failed) == []
    assert made.restarts == 1


def test_retries_of_a_replica_are_its_own() -> None:
    """With REPLICA each replica has all the retries."""
    made = app({"max_retries": 1, "retry_policy": "REPLICA"})
    first, second = made.replicas
    made.ended(first, 1, 2.0)
    made.count(first)
    made.ended(second, 1, 2.0)
    assert made.to_restart(first) == []
    assert made.to_restart(second) == [second]


def test_min_replicas() -> None:
    """A role holds while enough of it may end well, and succeeds when they have."""
    made = app({"num_replicas": 3, "min_replicas": 2})
    one, two, three = made.replicas
    made.ended(one, 1, 2.0)
    assert made.holds(0)
    made.ended(two, 0, 2.0)
    assert not made.succeeded()
    made.ended(three, 0, 2.0)
    assert made.succeeded()
    made.ended(two, -9, 2.0)
    assert not made.holds(0)


def test_ended_on_request_is_no_failure() -> None:
    """A replica that was told to stop did not fail, whatever its exit code."""
    made = app({})
    made.replicas[0].stopping = True
    assert not made.ended(made.replicas[0], 0, 2.0)
    assert made.replicas[0].state == "CANCELLED"


def test_counting_goes_on_after_a_requeue() -> None:
    """What was counted before Slurm started the job again counts still, and so does that start."""
    made = app({"max_retries": 2, "retry_policy": "REPLICA"})
    made.ended(made.replicas[0], 1, 2.0)
    made.count(made.replicas[0])
    made.replicas[0].run = 1
    later = app({"max_retries": 2, "retry_policy": "REPLICA"}, before=made.as_json())
    assert (later.restarts, later.requeues) == (2, 1)
    assert [replica.run for replica in later.replicas] == [2, 1]
    assert later.replicas[0].tries == 1
    assert later.requeue_allowed()
    assert not app({}, before=app({}).as_json()).requeue_allowed()


def test_exit_texts() -> None:
    """Ends are told in words."""
    assert exit_text(3) == "exit code 3"
    assert exit_text(-9) == "killed by SIGKILL"
    assert exit_text(-64) in ("killed by SIGRTMAX", "killed by signal 64")
    assert exit_text(-99) == "killed by signal 99"
    assert exit_text(None).startswith("lost")


def test_the_wrapper_is_good_for_old_nodes() -> None:
    """What runs on the nodes is written in the Python of 2019, and imports nothing but the standard library."""
    for path in Path(transload_slurm.job.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                assert name.partition(".")[0] in {*sys.stdlib_module_names, "transload_slurm_job"}, (path.name, name)
