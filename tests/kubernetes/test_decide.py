"""Decisions follow from facts alone, without a cluster."""

from __future__ import annotations

import json
import time
from typing import Any

from transload.specs import AppState
from transload_kubernetes import names
from transload_kubernetes.decide import HALF_SUBMITTED_S, decide
from transload_kubernetes.plan import Facts, Plan, RolePlan, Stop, record

NOW = time.time()


def facts_of(
    roles: list[RolePlan], jobs: list[dict[str, Any]], created: float = NOW, **data: str
) -> Facts:
    """Return facts with a record."""
    made = Plan("a", "a", "sha256:0", "s", created, roles)
    item = record("a", "default", made, "{}")
    item["data"].update({"submitted": "yes", **data})
    return Facts(item, jobs)


def job(
    role: str, attempt: names.Attempt = (0, 0), condition: str = "", **status: Any
) -> dict[str, Any]:
    """Return a Job."""
    labels = {names.LABEL_ROLE: role, names.LABEL_ATTEMPT: names.attempt_text(attempt)}
    if condition:
        status["conditions"] = [{"type": condition, "status": "True", "reason": "x"}]
    return {
        "metadata": {"name": names.job_name("a", role, attempt), "labels": labels},
        "spec": {},
        "status": status,
    }


def test_one_role_failed_ends_the_others() -> None:
    """If a role fails, the reason is noted, then others are ended.

    The job fails when none is left.
    """
    roles = [RolePlan("x", 1, 1), RolePlan("y", 1, 1)]
    failed = job("x", condition="Failed", failedIndexes="0")
    decision = decide(facts_of(roles, [failed, job("y")]), NOW)
    assert (
        decision.stop is not None
        and decision.end == [("Job", "a-y")]
        and not decision.status.is_terminal()
    )
    over = decide(
        facts_of(roles, [failed], stop=json.dumps({"kind": "failed", "msg": "x failed"})), NOW
    )
    assert (over.status.state, over.status.msg, over.note) == (AppState.FAILED, "x failed", True)
    assert [role.replicas[0].state for role in over.status.roles] == [
        AppState.FAILED,
        AppState.CANCELLED,
    ]


def test_whole_app_waits_for_the_old_attempt_to_be_gone() -> None:
    """Jobs of a new attempt are made only when nothing of the old one runs, and all of them in the
    end.
    """
    roles = [RolePlan("x", 2, 2, 1, "APPLICATION"), RolePlan("y", 2, 2, 0, "APPLICATION")]
    failed = job("x", condition="Failed", failedIndexes="0")
    first = decide(facts_of(roles, [failed, job("y")]), NOW)
    assert (first.end, first.restart) == ([("Job", "a-y")], [])
    second = decide(facts_of(roles, [failed]), NOW)
    assert second.restart == [("x", (1, 0)), ("y", (1, 0))]
    waiting = [each.state for role in second.status.roles for each in role.replicas]
    assert waiting == [AppState.PENDING] * 2 + [AppState.SUBMITTED] * 2
    third = decide(facts_of(roles, [failed, job("x", (1, 0))]), NOW)  # who made it died in between
    assert third.restart == [("y", (1, 0))]
    assert decide(facts_of(roles, [failed, job("x", (1, 0)), job("y", (1, 0))]), NOW).restart == []


def test_a_job_of_a_later_attempt_that_somebody_deletes_is_lost() -> None:
    """A Job that was noted as made is never made again, and an old success does not count."""
    roles = [RolePlan("x", 2, 2, 3, "APPLICATION"), RolePlan("y", 2, 2, 0, "APPLICATION")]
    failed, good = (
        job("x", condition="Failed", failedIndexes="0"),
        job("y", condition="Complete", completedIndexes="0-1"),
    )
    again = job("x", (1, 0), condition="Complete", completedIndexes="0-1")
    made = {"made.x.a1r0": "yes"}
    assert decide(facts_of(roles, [failed, good, again], **made), NOW).restart == [
        ("y", (1, 0))
    ]  # half-made
    lost = decide(facts_of(roles, [failed, good, again], **made, **{"made.y.a1r0": "yes"}), NOW)
    assert (
        lost.restart == []
        and lost.stop is not None
        and "deleted the Job of role y" in lost.stop.msg
    )


def test_a_job_of_a_later_attempt_of_a_role_that_somebody_deletes_is_lost() -> None:
    """The failure of the attempt before does not make it start again."""
    roles = [RolePlan("x", 2, 2, 3, "ROLE")]
    failed = job("x", condition="Failed", failedIndexes="0")
    assert decide(facts_of(roles, [failed]), NOW).restart == [("x", (0, 1))]
    lost = decide(facts_of(roles, [failed], **{"made.x.a0r1": "yes"}), NOW)
    assert lost.restart == [] and lost.stop is not None and "lost" in lost.stop.msg


def test_jobs_that_a_restart_has_ended_are_not_lost() -> None:
    """Jobs that a second restart of the job has deleted are not lost."""
    roles = [RolePlan("x", 2, 2, 2, "APPLICATION"), RolePlan("y", 2, 2, 0, "APPLICATION")]
    failed = [
        job("x", attempt, condition="Failed", failedIndexes="0") for attempt in ((0, 0), (1, 0))
    ]
    noted = {"made.x.a1r0": "yes", "made.y.a1r0": "yes"}
    assert decide(facts_of(roles, failed, **noted), NOW).restart == [("x", (2, 0)), ("y", (2, 0))]


def test_a_timeout_is_not_answered_by_a_retry() -> None:
    """A Job that took too long is not started again."""
    late = job("x", condition="Failed")
    late["status"]["conditions"][0]["reason"] = "DeadlineExceeded"
    decision = decide(facts_of([RolePlan("x", 2, 2, 3, "ROLE")], [late]), NOW)
    assert decision.restart == [] and decision.stop is not None and "timeout" in decision.stop.msg


def test_a_submit_that_never_ended() -> None:
    """An app without its Jobs is SUBMITTED for a while, then failed."""
    roles = [RolePlan("x", 1, 1)]
    assert decide(facts_of(roles, [], submitted=""), NOW).status.state is AppState.SUBMITTED
    late = decide(facts_of(roles, [], NOW - HALF_SUBMITTED_S - 1, submitted=""), NOW)
    assert late.stop is not None and "submit never finished" in late.stop.msg


def test_a_cancel_wins_over_what_fails_by_it() -> None:
    """A cancelled app without Jobs is CANCELLED."""
    stop = json.dumps({"kind": "cancel", "msg": ""})
    decision = decide(facts_of([RolePlan("x", 1, 1)], [], stop=stop), NOW)
    assert (decision.status.state, decision.status.cancel_requested) == (AppState.CANCELLED, True)
    assert Stop("cancel").msg == ""


def test_restarts_stay_when_the_last_jobs_are_gone() -> None:
    """What was noted of later attempts counts, though their Jobs were deleted."""
    failed = job("x", condition="Failed", failedIndexes="0")
    found = decide(
        facts_of(
            [RolePlan("x", 1, 1, 3, "ROLE")],
            [failed],
            **{"made.x.a0r1": "yes", "made.x.a0r2": "yes"},
        ),
        NOW,
    )
    assert found.status.num_restarts == 2
    assert (
        found.status.roles[0].replicas[0].restarts == 2
        and found.status.roles[0].replicas[0].exit_code is None
    )


def test_a_jobsets_job_that_was_made_again_is_a_restart() -> None:
    """A Job that the controller makes long after the JobSet replaces a deleted one."""
    labels = {names.LABEL_ROLE: "r", names.JOBSET_RESTARTS: "0"}
    for made, restarts in (("2026-01-01T00:00:05Z", 0), ("2026-01-01T00:10:00Z", 1)):
        facts = facts_of([RolePlan("r", 1, 1)], [])
        values = json.loads(facts.record["data"]["plan"]) if facts.record else {}
        facts.record["data"]["plan"] = json.dumps({**values, "jobset": True})  # type: ignore[index]
        facts.jobset = {
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {},
            "status": {},
        }
        facts.jobs = [
            {"metadata": {"name": "a-r-0", "labels": labels, "creationTimestamp": made}, "spec": {}}
        ]
        assert decide(facts, NOW).status.num_restarts == restarts


def test_between_two_parts_an_app_goes_on() -> None:
    """A Job that its queue admitted in part is RUNNING also while its first replicas have ended and
    no other began.
    """
    for parallelism, suspended, state in (
        (1, False, AppState.RUNNING),
        (2, False, AppState.PENDING),  # whole: a replica is missing
        (1, True, AppState.PENDING),
    ):
        part = job("r", completedIndexes="0")
        part["spec"] = {"parallelism": parallelism, "completions": 2, "suspend": suspended}
        assert decide(facts_of([RolePlan("r", 2, 2)], [part]), NOW).status.state is state


def test_a_replica_starts_when_its_program_does() -> None:
    """Neither when its pod was scheduled, before the image was pulled, nor in 1970, if it could not
    start.
    """
    labels = {names.LABEL_ROLE: "main", names.LABEL_ATTEMPT: "a0r0"}
    metadata = {"name": "p", "labels": labels, "annotations": {names.INDEX: "0"}}
    for state, phase, start in (
        ({"running": {"startedAt": "2026-11-22T12:05:00Z"}}, "Running", 1795349100.0),
        (
            {
                "terminated": {
                    "startedAt": "1970-01-01T00:00:00Z",
                    "reason": "StartError",
                    "exitCode": 128,
                }
            },
            "Failed",
            None,
        ),
    ):
        status = {"phase": phase, "startTime": "2026-11-22T12:00:00Z"}
        status["containerStatuses"] = [{"name": names.MAIN, "state": state}]  # type: ignore[assignment]
        facts = facts_of([RolePlan("main", 1, 1)], [job("main")])
        facts.pods = [{"metadata": metadata, "spec": {}, "status": status}]
        assert decide(facts, NOW).status.roles[0].replicas[0].start_time == start
