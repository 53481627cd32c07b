"""Decisions follow from facts about a job alone, table by table."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.specs import AppState, AppStatus
from transload_docker.decide import decide, may_run_again
from transload_docker.plan import (
    Container,
    Facts,
    Interruptions,
    Notice,
    Plan,
    Restarts,
    RolePlan,
)

_ids = itertools.count()


def plan(*roles: RolePlan, **more: Any) -> Plan:
    """Return a plan submitted at second 100."""
    return Plan(
        "app", "uid", "owner", roles or (RolePlan("main", 2, 2, 0, "REPLICA"),), 100.0, **more
    )


def box(k: int = 0, status: str = "running", *, role: str = "main", **more: Any) -> Container:
    """Return a container, where ``code=3`` is short for one that exited with 3."""
    if "code" in more:
        more["exit_code"], status = more.pop("code"), "exited"
        more.setdefault("finished", 110.0 + k)
    values = {"attempt": 0, "restarts": Restarts(), "started": 105.0} | more
    return Container(
        f"id{next(_ids)}", f"app.{role}.{k}", role, k, uid="uid", status=status, **values
    )


def look(facts: Facts, now: float = 200.0) -> Any:
    """Judge."""
    return decide(facts, now)


@pytest.mark.parametrize(
    ("containers", "state"),
    [
        ([box(0, "created", started=None), box(1, "created", started=None)], AppState.SUBMITTED),
        ([box(0), box(1, "created", started=None)], AppState.RUNNING),
        ([box(0), box(1)], AppState.RUNNING),
        ([box(0, "paused"), box(1, code=0)], AppState.RUNNING),
        ([box(0, code=0), box(1, code=0)], AppState.SUCCEEDED),
        ([box(0, code=1), box(1, code=0)], AppState.FAILED),
        ([box(0, code=0), box(1, "hibernating")], AppState.UNKNOWN),
        ([box(0, code=0), box(1, "removing")], AppState.UNKNOWN),
    ],
)
def test_state(containers: list[Container], state: AppState) -> None:
    """The containers' states make the app's."""
    assert look(Facts(plan(), containers)).status.state is state


def test_who_failed_first_is_blamed() -> None:
    """Of several failures the earliest is the reason."""
    decision = look(Facts(plan(), [box(0, code=1, finished=120.0), box(1, code=2, finished=119.0)]))
    assert "replica 1" in decision.status.msg


def test_who_lost_another_waits_for_the_cause() -> None:
    """One that says that another was lost is not blamed, if that one fails within three seconds."""
    lost = {"code": 1, "said": '{"message": "RuntimeError: Connection closed by peer"}'}
    facts = Facts(plan(), [box(0), box(1, finished=120.0, **lost)])
    waits = look(facts, 122.0)
    assert (waits.stop, waits.due) == (None, 123.0)
    assert look(facts, 123.0).stop[1].startswith("role 'main', replica 1 failed (exit code 1): R")
    facts.containers[0] = box(0, code=7, finished=121.0)
    assert look(facts, 122.0).status.msg == "role 'main', replica 0 failed (exit code 7)"


def test_the_next_attempt_waits() -> None:
    """A failure after another waits longer, as its container's label says, and delays no other."""
    role = RolePlan("main", 2, 2, 9, "REPLICA")
    last = box(0, code=1, attempt=3, restarts=Restarts(0, 0, 3, 3), finished=120.0, started=119.0)
    facts = Facts(plan(role), [last, box(1, "created", started=None)])
    early = look(facts, now=127.9)
    assert (early.due, early.renew, [c.replica for c in early.start]) == (128.0, [], [1])
    assert [r.state for r in early.status.roles[0].replicas] == [
        AppState.PENDING,
        AppState.SUBMITTED,
    ]
    ((renewal,), due) = (look(facts, now=128.0).renew, look(facts, now=128.0).due)
    assert renewal.restarts == Restarts(0, 0, 4, 4) and due == 128.0
    assert Restarts.from_text(renewal.restarts.to_text()) == renewal.restarts


def test_lost_container_is_a_failure_never_a_success() -> None:
    """What was removed behind our back has failed, retries or not."""
    decision = look(Facts(plan(RolePlan("main", 2, 2, 5, "REPLICA")), [box(0, code=0)]))
    assert decision.status.state is AppState.FAILED
    assert decision.status.msg == "role 'main', replica 1 failed (lost: its container was removed)"


def test_the_limit_is_told() -> None:
    """A job with a limit says how long it may run, and until when. Others say neither."""
    limited = look(Facts(plan(timeout=500.0), [box(0), box(1)])).status
    assert (limited.time_limit, limited.ends_by) == (500.0, 600.0)
    free = look(Facts(plan(), [box(0), box(1)])).status
    assert (free.time_limit, free.ends_by) == (None, None)


def test_cancel_before_the_start() -> None:
    """What was never started is not started any more."""
    facts = Facts(
        plan(),
        [box(k, "created", started=None) for k in (0, 1)],
        stop={"reason": "cancel", "time": 1.0},
    )
    decision = look(facts)
    assert decision.status.state is AppState.CANCELLED and not decision.start


def test_out_of_memory_is_told_apart() -> None:
    """A kill for the memory limit is named. The same exit code without it is a signal."""
    assert (
        "out of memory"
        in look(Facts(plan(), [box(0, code=137, oom=True), box(1, code=0)])).status.msg
    )
    assert "SIGKILL" in look(Facts(plan(), [box(0, code=137), box(1, code=0)])).status.msg


def test_noted_end_counts() -> None:
    """Once noted the end is what was noted, whatever became of the containers."""
    noted = AppStatus(AppState.SUCCEEDED, msg="noted").to_json()
    decision = look(Facts(plan(), [], ended=noted))
    assert decision.status.state is AppState.SUCCEEDED and not decision.note


@pytest.mark.parametrize(
    ("role", "containers", "expected"),
    [
        (RolePlan("main", 2, 2, 1, "REPLICA"), [box(0, code=0), box(1)], False),
        (RolePlan("main", 2, 2, 1, "APPLICATION"), [box(0, code=0), box(1)], True),
        (RolePlan("main", 2, 2, 1, "ROLE"), [box(0, code=0), box(1)], True),
        (RolePlan("main", 2, 2, 1, "REPLICA"), [box(0, code=1), box(1)], True),
        (RolePlan("main", 2, 2, 0, "REPLICA"), [box(0, code=1), box(1, code=0)], False),
    ],
)
def test_may_run_again(role: RolePlan, containers: list[Container], expected: bool) -> None:
    """A log is complete only when its replica cannot be started again."""
    facts = Facts(plan(role), containers)
    assert facts.plan is not None
    assert may_run_again(facts.plan, facts, "main", 0) is expected


_ASKING = RolePlan("main", 1, 1, 0, "REPLICA", max_interruptions=9, notice=30.0, checkpoints=True)


def notice(*containers: Container, at: float = 108.0, cause: str = "") -> Notice:
    """Return a notice to containers."""
    ids = tuple(each.id[: Notice.ID_LENGTH] for each in containers)
    return Notice(f"key{next(_ids)}", ids, at, cause, "owner")


def test_notice_before_the_limit() -> None:
    """A notice is due that long before the limit. Who had one gets no other, and is killed then."""
    running = box()
    facts = Facts(plan(_ASKING, timeout=100.0), [running])
    assert look(facts, now=169.0).due == 170.0
    decision = look(facts, now=170.0)
    assert (decision.warn, decision.end, decision.stop) == ([running], [], None)
    facts.notices = [notice(running, at=170.0)]
    assert look(facts, now=171.0).warn == []
    assert look(facts, now=200.0).stop == ("failure", "timed out after 100 s")
    facts.stop = {"reason": "failure", "msg": "timed out after 100 s", "time": 200.0}
    decision = look(facts, now=200.0)
    assert (decision.end, decision.kill) == ([], [running])


def test_an_end_is_a_notice_and_then_a_kill() -> None:
    """After its notice a container has the time of its role, or the time of one without."""
    running = box()
    facts = Facts(plan(_ASKING, grace=5.0), [running], stop={"reason": "cancel", "time": 150.0})
    assert look(facts).end == [running]
    facts.notices = [notice(running, at=190.0, cause="end")]
    decision = look(facts)
    assert (decision.end, decision.kill, decision.due) == ([], [], 220.0)
    assert look(facts, now=220.0).kill == [running]
    facts.plan = plan(RolePlan("main", 1, 1, 0, "REPLICA"), grace=5.0)
    assert look(facts, now=195.0).kill == [running]


def test_interruption() -> None:
    """An interruption is counted apart, and the next attempt knows the number."""
    ended = box(code=75, asked_to_end=109.0)
    facts = Facts(plan(_ASKING), [ended])
    decision = look(facts)
    assert decision.status.msg.endswith("(requested) after 5 s; started again, 1st of 9")
    (renewal,) = decision.renew
    assert (renewal.attempt, renewal.retry, renewal.restarts.replica) == (1, 0, 0)
    counted = renewal.interruptions
    assert counted is not None
    assert (counted.replica, counted.own) == (1, 1)
    assert [each["cause"] for each in counted.earlier] == ["requested"]
    assert Interruptions.from_text(counted.to_text()) == counted
    failed = look(Facts(plan(_ASKING), [box(code=75)]))
    assert (failed.status.state, failed.renew) == (AppState.FAILED, [])


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"code": 137, "was_stopped": True}, "requested"),
        ({"code": 143, "was_stopped": True}, "requested"),
        ({"code": 137}, "failed"),
        ({"code": 143}, "failed"),
        ({"code": 1, "was_stopped": True}, "failed"),
        ({"code": 137, "was_stopped": True, "oom": True}, "failed"),
        ({"code": 137, "was_stopped": True, "asked_to_end": None}, "failed"),
    ],
)
def test_a_stop_that_was_not_heeded(values: dict[str, Any], cause: str) -> None:
    """A replica that died of a stop was interrupted. Any other end is a failure."""
    role = replace(_ASKING, max_retries=1)
    facts = Facts(plan(role), [box(**{"asked_to_end": 109.0, **values})])
    (renewal,) = look(facts).renew
    assert renewal.interruptions is not None
    assert [each["cause"] for each in renewal.interruptions.earlier] == [cause]
    assert renewal.retry == (cause == "failed")


def test_an_interruption_that_was_answered_halfway() -> None:
    """Whoever comes after a supervisor that died between two containers makes the other one."""
    role = replace(_ASKING, num_replicas=2, min_replicas=2, retry_policy="APPLICATION")
    ended = [box(0, code=75, asked_to_end=109.0), box(1, code=143)]
    facts = Facts(plan(role), ended, notices=[notice(ended[1], at=110.5, cause="end")])
    renewals = look(facts).renew
    assert [each.last.replica for each in renewals] == [0, 1]
    first = renewals[0]
    made = box(
        0,
        "created",
        started=None,
        attempt=1,
        restarts=first.restarts,
        interruptions=first.interruptions,
    )
    facts.containers.append(made)
    decision = look(facts)
    assert decision.start == []
    (second,) = decision.renew
    assert (second.last.replica, second.attempt, second.retry) == (1, 1, 0)
    assert second.interruptions is not None
    assert second.interruptions.replica == 1


_BOXES = st.builds(
    lambda k, role, status, code, attempt, app, part: box(
        k,
        status,
        role=role,
        exit_code=code if status == "exited" else None,
        attempt=attempt,
        restarts=Restarts(app, part),
    ),
    st.integers(0, 2),
    st.sampled_from(["a", "b"]),
    st.sampled_from(
        ["created", "running", "paused", "exited", "exited", "dead", "removing", "new-word"]
    ),
    st.sampled_from([0, 1, 137]),
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(0, 1),
)
_ROLES = st.builds(
    RolePlan,
    st.just("a"),
    st.just(3),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(["REPLICA", "ROLE", "APPLICATION"]),
)


@given(
    _ROLES,
    st.lists(_BOXES, max_size=9),
    st.sampled_from(
        [None, {"reason": "cancel", "time": 110.0}, {"reason": "failure", "time": 110.0}]
    ),
    st.sampled_from([None, 50.0]),
)
def test_every_verdict_is_sound(
    role: RolePlan, containers: list[Container], stop: dict[str, Any] | None, timeout: float | None
) -> None:
    """A state is final only if nothing may run. What is being ended is not started."""
    facts = Facts(
        plan(role, RolePlan("b", 2, 2, 1, "REPLICA"), timeout=timeout), containers, stop=stop
    )
    decision = look(facts)
    assert decision.note == decision.status.is_terminal()
    if decision.note:
        assert not (decision.start or decision.renew or decision.end or decision.stop)
        latest: dict[tuple[str, int], Container] = {}
        for each in containers:
            before = latest.get((each.role, each.replica))
            if before is None or before.attempt < each.attempt:
                latest[each.role, each.replica] = each
        ran = [each for key, each in latest.items() if key[1] < (3 if key[0] == "a" else 2)]
        assert not any(each.status in ("running", "paused", "new-word") for each in ran)
    if stop is not None:
        assert not (decision.start or decision.renew)
    ending = {(each.role, each.replica) for each in decision.end}
    assert not ending & {(each.role, each.replica) for each in decision.start}
    assert not ending & {(each.last.role, each.last.replica) for each in decision.renew}
