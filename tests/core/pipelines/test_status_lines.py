"""An orchestrator's log gets lines for the statuses of a running job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transload.pipelines import interruptions_of
from transload.pipelines.status_lines import Reported, new_interruptions, status_lines
from transload.specs import (
    AppState,
    AppStatus,
    Progress,
    ReplicaAttempt,
    ReplicaStatus,
    RoleStatus,
)

pytestmark = pytest.mark.unit

JOB = "scripted://host/job"
NOW = 1000.0


def running(progress: Progress | None = None, **more: Any) -> AppStatus:
    """Return the status of a job that runs."""
    return AppStatus(AppState.RUNNING, progress=progress, **more)


def interrupted(number: int, *earlier: ReplicaAttempt) -> AppStatus:
    """Return the status of a job of two replicas, one of which was interrupted."""
    replicas = [
        ReplicaStatus(0, AppState.RUNNING, "main", "h"),
        ReplicaStatus(1, AppState.RUNNING, "main", "h", interruptions=number),
    ]
    replicas[1].earlier = list(earlier)
    return AppStatus(AppState.RUNNING, roles=[RoleStatus("main", replicas)])


def lines(status: AppStatus, reported: Reported, **more: Any) -> list[str]:
    """Return the lines of a status, without the handle."""
    return [
        line.replace(f"{JOB}", "JOB") for line in status_lines(JOB, status, reported, NOW, **more)
    ]


def test_a_line_for_each_twentieth() -> None:
    """A thousand steps are 21 lines. A small step back is none, and a new beginning is one."""
    reported = Reported()
    found = [
        line for step in range(1001) for line in lines(running(Progress(step / 1000)), reported)
    ]
    assert len(found) == 21
    assert found[:2] == ["JOB: 0 %", "JOB: 5 %"]
    assert lines(running(Progress(0.99)), reported) == []
    assert lines(running(Progress(0.5, eta_seconds=60.0, at=NOW)), reported) == [
        "JOB: 50 %, 1 min 00 s left"
    ]


def test_a_line_a_minute_without_a_part() -> None:
    """A job that only counts its steps has a line for each minute."""
    reported = Reported()
    found = [lines(running(Progress(step=at, at=at)), reported) for at in range(0, 180, 10)]
    assert [len(each) for each in found].count(1) == 3
    assert found[6] == ["JOB: step 60"]


def test_a_reason_is_said_once() -> None:
    """Another reason is a line, and so is the same one after the job has run."""
    reported = Reported()
    waits = AppStatus(AppState.PENDING, msg="no node; expected to start at 12:00")
    assert lines(waits, reported) == ["JOB is PENDING: no node; expected to start at 12:00"]
    assert lines(waits, reported) == []
    assert lines(AppStatus(AppState.UNKNOWN, msg="away"), reported) == []
    assert lines(waits, reported) == []
    assert lines(AppStatus(AppState.PENDING, msg="quota"), reported) == ["JOB is PENDING: quota"]
    assert lines(running(), reported) == []
    assert lines(AppStatus(AppState.PENDING, msg="quota"), reported) == ["JOB is PENDING: quota"]


@pytest.mark.parametrize(
    ("ends_by", "deadline", "whose"),
    [
        (NOW + 600, None, "its limit of time"),
        (None, NOW + 600, "the orchestrator's time limit"),
        (NOW + 900, NOW + 600, "the orchestrator's time limit"),
        (NOW + 600, NOW + 900, "its limit of time"),
    ],
)
def test_the_nearer_limit_is_warned_of_once(
    ends_by: float | None, deadline: float | None, whose: str
) -> None:
    """The job's own limit and the orchestrator's are told apart."""
    reported = Reported(part=2)
    status = running(Progress(0.1, eta_seconds=7200.0, at=NOW), ends_by=ends_by)
    (line,) = lines(status, reported, deadline=deadline)
    assert line.startswith(f"warning: JOB: it will not end within {whose}: it needs 2 h 00 min")
    assert line.endswith("and has 10 min 00 s")
    assert lines(status, reported, deadline=deadline) == []


def test_a_stall_is_warned_of_once_each_time() -> None:
    """It is a line again once the job has gone on meanwhile."""
    reported = Reported()
    stalled = running(msg="main/0 has stalled: no sign of life for 20 min", stalled=True)
    assert lines(stalled, reported) == [f"warning: JOB: {stalled.msg}"]
    assert lines(stalled, reported) == []
    assert lines(running(), reported) == []
    assert len(lines(stalled, reported)) == 1


def test_interruptions_in_words() -> None:
    """Each interruption has its cause, step, time and number. Failures are not counted."""
    attempts = [
        ReplicaAttempt(AppState.CANCELLED, start_time=0.0, end_time=11520.0, cause="preempted"),
        ReplicaAttempt(AppState.FAILED, cause="failed"),
        ReplicaAttempt(AppState.CANCELLED, cause="node", step=4200.0),
    ]
    status = interrupted(12, *attempts)
    found = [each.in_words(100) for each in interruptions_of(status)]
    assert found == [
        "interrupted (preempted) after 3 h 12 min; started again, 11th of 100",
        "interrupted (node) at step 4,200; started again, 12th of 100",
    ]
    numbers = [each.number for each in new_interruptions(status, Reported(interruptions=11))]
    assert numbers == [12]
    assert [each.number for each in new_interruptions(status, Reported())] == [12]
    assert new_interruptions(status, Reported(interruptions=12)) == []
    (bare,) = interruptions_of(interrupted(2))
    assert bare.in_words() == "interrupted; started again, 2nd"
    assert interruptions_of(running()) == []


def test_what_was_reported_survives_json() -> None:
    """Zeros are kept, what is unknown is not written, and an unknown field is ignored."""
    reported = Reported("quota", 0, 0, 0, late=True)
    again = Reported.from_dict(json.loads(json.dumps({**reported.to_dict(), "later": 1})))
    assert again == reported
    assert Reported().to_dict() == {}
