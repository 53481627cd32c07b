"""The error of a training is the first exception of its processes, or the one that was killed.

`torchrun/VERSION` has what torchrun of that version wrote to standard error, of each node where
there are two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.keeper.failures import error_line, is_about_peer
from transload.keeper.rules import Gang
from transload.keeper.tracebacks import traceback_error
from transload.runner.failures import error_frames

pytestmark = pytest.mark.unit

RECORDED = sorted((Path(__file__).parent / "torchrun").glob("*/*.txt"))
RAISED = "rank 1: ValueError: no such batch"
ERRORS = {
    "before": RAISED,
    "after": RAISED,
    "record": RAISED,
    "killed": "rank 1 killed by SIGKILL",
    "exit": "rank 1 exit code 7",
    "again": "rank 1 exit code 75",
    "notice": "torch.distributed.elastic.multiprocessing.api.SignalException: Process 21495 got signal: 15",
    "killed-rank-0-of-two-nodes.0": "rank 0 killed by SIGKILL",
    "killed-rank-1-of-two-nodes.1": "rank 1 killed by SIGKILL",
    "after-on-two-nodes.1": RAISED,
}
"""What is recorded → the error, where the cause is on that node."""
OTHERS = {
    "killed-rank-0-of-two-nodes.1": "rank 1: ",
    "killed-rank-1-of-two-nodes.0": "rank 0: ",
    "after-on-two-nodes.0": "rank 0: ",
}
"""What is recorded → how the error begins, where the cause is on the other node."""


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_the_error_of_a_node(file: Path) -> None:
    """Neither torchrun's own exception nor one about a lost process is the error of its node."""
    error = traceback_error(file.read_bytes())
    line = error_line(error)
    if file.stem in OTHERS:
        assert line.startswith(OTHERS[file.stem])
        assert is_about_peer(error)
        return
    assert line == ERRORS[file.stem]
    assert not is_about_peer(error)
    if line == RAISED:
        assert error_frames(error)[-2].endswith(", in train")


def test_a_handled_exception_is_not_the_error() -> None:
    """What a process went on after, as before it met the others, is not what ended it."""
    handled = b"[1]:Traceback (most recent call last):\n[1]:  File x\n[1]:ImportError: no flash\n"
    (file,) = [each for each in RECORDED if each.match("2.13/after.txt")]
    assert error_line(traceback_error(handled + file.read_bytes())) == RAISED


@pytest.mark.parametrize(("name", "code"), [("again", 75), ("notice", -15), ("exit", 1)])
@pytest.mark.parametrize("warned", [True, False])
def test_what_its_processes_ended_with_is_the_exit_code(name: str, code: int, warned: bool) -> None:
    """Torchrun ends with 1 whatever happens. After a notice, the job goes on as it would without
    torchrun.
    """
    training = gang(0, notice=60.0, max_interruptions=3)
    (file,) = [each for each in RECORDED if each.match(f"2.13/{name}.txt")]
    if warned:
        for each in training.replicas:
            training.notified(each, 1.0, "preempted")
    replica = training.replicas[0]
    training.ended(replica, 1, 5.0, error=traceback_error(file.read_bytes()))
    assert replica.attempt.code == code
    assert (replica.attempt.cause == "preempted") == (warned and code != 1)


def gang(retries: int, **more: Any) -> Gang:
    """Return a training of two nodes, which runs."""
    role = {"name": "train", "num_replicas": 2, "min_replicas": None, "max_retries": retries}
    role.update(more)
    made = Gang([{**role, "retry_policy": "APPLICATION"}])
    made.begin(0.0)
    for replica in made.replicas:
        made.started(replica, 0.0)
    return made


def recorded(name: str, node: int) -> dict[str, Any]:
    """Return what a keeper says of a node of the newest torchrun."""
    (file,) = [each for each in RECORDED if each.match(f"2.13/{name}.{node}.txt")]
    return {"code": 1, "error": traceback_error(file.read_bytes())}


@pytest.mark.parametrize("retries", [0, 1])
def test_the_node_that_lost_another_waits_for_the_cause(retries: int) -> None:
    """Whichever node ends first, the job's message is about the process that was killed."""
    training = gang(retries)
    first, second = training.replicas
    training.ended(second, at=5.0, **recorded("killed-rank-0-of-two-nodes", 1))
    training.decide(5.0)
    assert (training.final, training.restarts) == (None, [])
    assert training.due() == 8.0
    training.ended(first, at=6.0, **recorded("killed-rank-0-of-two-nodes", 0))
    training.decide(6.0)
    assert "replica 0 failed (exit code 1): rank 0 killed by SIGKILL" in training.msg
    assert bool(training.restarts) == bool(retries)


def test_a_node_that_lost_another_does_not_wait_for_long() -> None:
    """Where the other node goes on, as it may hang, the failure counts after some seconds."""
    training = gang(0)
    training.ended(training.replicas[1], at=5.0, **recorded("killed-rank-0-of-two-nodes", 1))
    training.decide(7.9)
    assert training.final is None
    training.decide(8.0)
    assert training.final is not None
    assert "replica 1 failed (exit code 1): rank 1: " in training.msg
