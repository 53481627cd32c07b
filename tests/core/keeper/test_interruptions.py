"""The rules of interruptions, notices and segments. No process is started."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.keeper.rules import TERMINAL, Gang, Replica
from transload.specs import AppStatus

pytestmark = pytest.mark.unit


def role(replicas: int = 1, policy: str = "APPLICATION", **more: Any) -> dict[str, Any]:
    """Return a role that may be interrupted three times, with a notice of 10 s."""
    named = {"name": "r", "num_replicas": replicas, "min_replicas": None, "max_retries": 0}
    ends = {"max_interruptions": 3, "notice": 10.0, "notice_signal": 15}
    return {**named, **ends, "retry_policy": policy, "retry_delay": 1.0, **more}


class Stage:
    """An engine that does what the rules say, on a clock that the test moves.

    Its programs end with ``answer`` one second after their notice, or with None go on until KILL.
    """

    def __init__(self, *roles: dict[str, Any], answer: int | None = 75, **more: Any) -> None:
        self.roles = [{**each, "name": f"r{i}"} for i, each in enumerate(roles)]
        self.more = more
        self.gang = Gang(self.roles, **more)
        self.answer = answer
        self.now = 0.0
        self.sent: list[tuple[float, int]] = []  # notices: when, and to whom
        self.answers: dict[Replica, float] = {}
        self.gang.begin(self.now)
        self.start(self.gang.replicas)

    def start(self, replicas: list[Replica]) -> None:
        """Start replicas."""
        for replica in replicas:
            self.gang.started(replica, self.now, "host")
            self.answers.pop(replica, None)

    def end(self, index: int, code: int | None, **more: Any) -> None:
        """End a replica."""
        self.gang.ended(self.gang.replicas[index], code, self.now, **more)
        self.obey()

    def notify(self, index: int, cause: str) -> None:
        """Send a replica a notice that the engine gave."""
        self.gang.notified(self.gang.replicas[index], self.now, cause)

    def requeue(self, cause: str) -> None:
        """Have the engine end the job and start it again, unless its end is decided."""
        if self.gang.final is not None:
            return
        self.gang.interrupt()
        before = json.loads(json.dumps({**self.gang.as_json(), "counts": self.gang.counts()}))
        self.answers = {}
        self.gang = Gang(self.roles, before=before, cause=cause, **self.more)
        self.gang.begin(self.now)
        self.start(self.gang.replicas)
        refused = self.gang.why_not_again()
        if refused:
            self.gang.end("FAILED", refused)

    def run_to(self, when: float) -> None:
        """Let time pass, in steps of a second."""
        while self.now < when and self.gang.state not in TERMINAL:
            self.now += 1.0
            self.obey()

    def obey(self) -> None:
        """Do all that is to be done now."""
        gang = self.gang
        for replica in gang.notices(self.now):
            gang.notified(replica, self.now)
            self.sent.append((self.now, gang.replicas.index(replica)))
            if self.answer is not None:
                self.answers[replica] = self.now + 1.0
        for replica, when in list(self.answers.items()):
            if self.now >= when and replica.attempt.alive:
                gang.ended(replica, self.answer, self.now)
        gang.decide(self.now)
        for replica in gang.replicas:
            over = replica.attempt.kill_at is None or self.now >= replica.attempt.kill_at
            if replica.attempt.alive and replica.attempt.stopping and over:
                gang.ended(replica, -9, self.now)
        gang.decide(self.now)
        for restart in [each for each in gang.restarts if each.is_ready(self.now)]:
            self.start(gang.renew(restart, self.now))
        gang.refresh()
        if gang.final is not None and gang.is_idle:
            gang.finish(self.now)

    def counts(self) -> list[tuple[int, int]]:
        """Return how often each replica was started again after failures and interruptions."""
        return [(each.restarts, each.interruptions) for each in self.gang.replicas]


@pytest.mark.parametrize("cause", ["preempted", "node", "evicted", "drained"])
def test_the_cause_that_the_engine_names_spends_no_retry(cause: str) -> None:
    """A lost machine and its like start it again, counted apart, and the status says why."""
    stage = Stage(role())
    stage.now = 11_520.0
    stage.gang.advanced(stage.gang.replicas[0], 4200)
    stage.end(0, None, cause=cause)
    stage.run_to(11_522.0)
    assert stage.counts() == [(0, 1)]
    said = f"interrupted ({cause}) at step 4,200 after 3 h 12 min; started again, 1st of 3"
    assert said in stage.gang.msg
    status = AppStatus.from_dict(stage.gang.as_json())
    (replica,) = status.roles[0].replicas
    assert (replica.restarts, replica.interruptions, status.num_restarts) == (0, 1, 0)
    assert [(each.cause, each.step, each.state.name) for each in replica.earlier] == [
        (cause, 4200, "CANCELLED")
    ]


def test_too_many_interruptions_end_it() -> None:
    """The fourth of three is the end, and says so."""
    stage = Stage(role())
    for _ in range(4):
        stage.end(0, None, cause="preempted")
        stage.run_to(stage.now + 60)
    assert stage.gang.state == "FAILED"
    assert "interrupted (preempted)" in stage.gang.msg
    assert "its 3 interruptions are used up" in stage.gang.msg


def test_without_leave_an_interruption_is_a_failure() -> None:
    """A role that allows none fails as before, and its JSON has no new field."""
    stage = Stage(role(max_interruptions=0, notice=None, max_retries=1))
    stage.end(0, None, cause="preempted")
    stage.run_to(5)
    assert stage.counts() == [(1, 0)]
    text = json.dumps({**stage.gang.as_json(), "counts": stage.gang.counts()})
    assert not [name for name in ("cause", "interrupt", "progress") if name in text]


def test_a_failure_in_between_spends_a_retry() -> None:
    """Failures and interruptions have a number each, and a program can tell them apart."""
    stage = Stage(role(max_retries=1))
    stage.end(0, None, cause="node")
    stage.run_to(5)
    stage.end(0, 1)
    stage.run_to(15)
    stage.end(0, None, cause="preempted")
    stage.run_to(30)
    assert stage.counts() == [(1, 2)]
    assert stage.gang.replicas[0].run == 3
    causes = [each.get("cause") for each in stage.gang.replicas[0].earlier]
    assert causes == ["node", "failed", "preempted"]
    stage.end(0, 1)
    stage.run_to(60)
    assert stage.gang.state == "FAILED"


@pytest.mark.parametrize("noticed", [True, False])
def test_exit_code_75_counts_only_after_a_notice(noticed: bool) -> None:
    """Without one it is a failure like any other."""
    stage = Stage(role())
    if noticed:
        stage.notify(0, "requested")
    stage.end(0, 75)
    stage.run_to(5)
    assert stage.counts() == [(0, int(noticed))]
    assert (stage.gang.state == "FAILED") is not noticed


@pytest.mark.parametrize(
    ("cause", "code", "interruption"),
    [
        ("preempted", 75, True),
        ("preempted", -15, True),
        ("preempted", 143, True),
        ("preempted", -9, True),
        ("preempted", 1, False),
        ("requested", -15, False),
        ("requested", -9, False),
        ("requested", 1, False),
    ],
)
def test_what_an_end_after_a_notice_means(cause: str, code: int, interruption: bool) -> None:
    """A death by the signal of a notice that precedes an end is an interruption.

    What cannot be told apart is a failure.
    """
    stage = Stage(role())
    stage.notify(0, cause)
    stage.end(0, code)
    assert (stage.gang.state != "FAILED") is interruption


def test_success_after_a_notice_is_success() -> None:
    """Exit code 0 is the end of the work, whenever it comes."""
    stage = Stage(role(), answer=0, segment=100.0)
    stage.run_to(150)
    assert (stage.gang.state, stage.counts()) == ("SUCCEEDED", [(0, 0)])


@pytest.mark.parametrize("answer", [75, -15, None])
def test_segments(answer: int | None) -> None:
    """The notice comes its seconds before the end of each segment, and the next one begins anew."""
    stage = Stage(role(2), answer=answer, segment=100.0)
    stage.run_to(220)
    length = 100.0 if answer is None else 91.0
    assert stage.sent == [(at, k) for at in (90.0, length + 90) for k in (0, 1)]
    assert stage.counts() == [(0, 2), (0, 2)]
    assert {each["cause"] for each in stage.gang.replicas[1].earlier} == {"segment"}
    assert "interrupted (segment)" in stage.gang.msg


def test_a_failure_within_a_segment_is_one() -> None:
    """What a program says by another exit code than 75 is a failure, near the end of a segment too."""
    stage = Stage(role(), answer=1, segment=100.0)
    stage.run_to(150)
    assert stage.gang.state == "FAILED"
    assert "exit code 1" in stage.gang.msg


def test_a_replica_that_is_done_stays_so_over_segments() -> None:
    """Where replicas are retried one by one, a segment starts only the others again."""
    stage = Stage(role(2, policy="REPLICA"), segment=100.0)
    stage.end(0, 0)
    stage.run_to(150)
    assert stage.counts() == [(0, 0), (0, 1)]
    stage.end(1, 0)
    assert stage.gang.state == "SUCCEEDED"


def test_a_failure_that_a_role_can_do_without_stays_so_over_segments() -> None:
    """Where replicas are retried one by one, a segment does not start a failed one again."""
    stage = Stage(role(3, policy="REPLICA", min_replicas=1), segment=100.0)
    stage.end(0, 1)
    stage.run_to(150)
    assert stage.counts() == [(0, 0), (0, 1), (0, 1)]
    assert stage.gang.replicas[0].attempt.state == "FAILED"


@pytest.mark.parametrize("answer", [75, None, -15, 0])
def test_the_time_limit_is_no_interruption(answer: int | None) -> None:
    """The notice comes before the limit, which ends it for good. Success in time is success."""
    stage = Stage(role(), answer=answer, timeout=100.0)
    stage.run_to(200)
    assert stage.sent == [(90.0, 0)]
    assert stage.counts() == [(0, 0)]
    assert stage.gang.state == ("SUCCEEDED" if answer == 0 else "FAILED")
    if answer in (75, None):
        assert stage.gang.msg == "timed out after 100 s"


def test_the_limit_holds_over_segments() -> None:
    """Time in all segments counts, and time spent waiting for the next one does not."""
    stage = Stage(role(max_interruptions=100, notice=None), answer=None, timeout=250, segment=100)
    stage.run_to(1000)
    assert (stage.now, stage.counts()) == (250.0, [(0, 2)])
    stage = Stage(role(max_interruptions=100, notice=None), answer=None, timeout=250, segment=100)
    stage.run_to(150)
    stage.gang.skip(40)
    stage.run_to(1000)
    assert stage.now == 290.0


def test_a_gang_has_its_notice_to_the_end() -> None:
    """A gang's first replica that is done does not cut the others' notice short."""
    stage = Stage(role(2), answer=None, segment=100.0)
    stage.run_to(92)
    stage.end(0, 75)
    stage.run_to(99)
    assert [each.attempt.alive for each in stage.gang.replicas] == [False, True]
    stage.run_to(103)
    assert stage.counts() == [(0, 1), (0, 1)]


def test_counting_goes_on_where_the_engine_starts_it_again() -> None:
    """If an engine puts the job back itself, all that was counted is in its JSON."""
    roles = [role(max_interruptions=2)]
    gang = Gang(roles)
    gang.begin(0.0)
    gang.started(gang.replicas[0], 0.0)
    gang.advanced(gang.replicas[0], 10)
    before = json.loads(json.dumps({**gang.as_json(), "counts": gang.counts()}))

    gang = Gang(roles, before=before, cause="preempted")
    assert gang.why_not_again() == ""
    assert (gang.replicas[0].restarts, gang.replicas[0].interruptions) == (0, 1)
    assert gang.as_json()["num_restarts"] == 0
    assert gang.replicas[0].earlier[0]["cause"] == "preempted"
    assert gang.replicas[0].earlier[0]["step"] == 10
    for _ in range(2):
        before = json.loads(json.dumps({**gang.as_json(), "counts": gang.counts()}))
        gang = Gang(roles, before=before, cause="segment")
    assert gang.why_not_again() == "its 2 interruptions are used up"

    unknown = Gang(roles, before=before)  # nobody knows why: as before, a retry
    assert (unknown.as_json()["num_restarts"], unknown.replicas[0].restarts) == (1, 1)
    assert unknown.why_not_again() == "its retries are used up"


# -------------------------------------------------------------------------------------------------------
# properties

_ROLES = st.lists(
    st.builds(
        role,
        st.integers(1, 3),
        st.sampled_from(["REPLICA", "ROLE", "APPLICATION"]),
        max_interruptions=st.integers(0, 3),
        max_retries=st.integers(0, 2),
        notice=st.none() | st.floats(1.0, 30.0),
    ),
    min_size=1,
    max_size=3,
)
_CAUSES = ["", "", "preempted", "node", "requested"]
_EVENTS = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from([0, 1, 75, -9, None]), st.sampled_from(_CAUSES))
    | st.tuples(st.just("notice"), st.integers(0, 8), st.sampled_from(_CAUSES[2:]))
    | st.floats(1.0, 200.0)
    | st.tuples(st.just("requeue"), st.sampled_from(["", "", "preempted", "node", "segment"]))
    | st.sampled_from(["cancel", "step"]),
    max_size=40,
)


def drive(stage: Stage, event: Any) -> None:
    """Let one event happen."""
    gang = stage.gang
    if event == "cancel":
        gang.end("CANCELLED", "")
    elif event == "step":
        gang.advanced(gang.replicas[0], 4200)
    elif isinstance(event, float):
        stage.run_to(stage.now + event)
    elif event[0] == "requeue":
        stage.requeue(event[1])
    elif event[0] == "notice":
        stage.notify(event[1] % len(gang.replicas), event[2])
    else:
        index, code, cause = event
        gang.ended(gang.replicas[index % len(gang.replicas)], code, stage.now, cause=cause)
    stage.obey()


@given(_ROLES, _EVENTS, st.none() | st.floats(50.0, 2000.0), st.none() | st.floats(31.0, 200.0))
def test_whatever_happens(
    roles: list[dict[str, Any]],
    events: list[Any],
    timeout: float | None,
    segment: float | None,
) -> None:
    """A verdict never changes, and interruptions spend no retries and stay within their number.

    That holds over all starts by the engine, too. A job always runs, waits, or has ended, and its
    status can be read.
    """
    if segment is not None and not all(each["max_interruptions"] for each in roles):
        segment = None
    stage = Stage(*roles, timeout=timeout, segment=segment)
    # what the engine starts again is counted before it is refused
    most = 1 + sum(each["max_interruptions"] * each["num_replicas"] for each in roles)
    failures = 2 + sum(each["max_retries"] * (1 + each["num_replicas"]) for each in roles)
    decided = None
    for event in events:
        drive(stage, event)
        gang = stage.gang
        assert decided is None or gang.final == decided
        decided = gang.final
        for replica in gang.replicas:
            assert replica.interruptions <= most
            assert replica.restarts < failures
            assert replica.run == replica.restarts + replica.interruptions
        if gang.state not in TERMINAL:
            assert gang.restarts or any(replica.attempt.alive for replica in gang.replicas)
        status = AppStatus.from_json(json.dumps(gang.as_json()))
        assert [each.interruptions for each in status.roles[0].replicas] == [
            each.interruptions for each in gang.replicas if each.role == 0
        ]
    if not any(each["max_interruptions"] for each in roles):
        assert "cause" not in json.dumps(stage.gang.as_json())
