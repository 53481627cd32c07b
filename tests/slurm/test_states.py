"""The state table has every word of Slurm's, and unknown words are UNKNOWN."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.keeper.rules import Gang
from transload.specs import AppState, AppStatus, is_terminal
from transload_slurm import commands
from transload_slurm.decide import decide
from transload_slurm.jobs import Job, _merge, sacct, squeue
from transload_slurm.states import STATES, clean, combined, ended, to_state

WORDS = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "CONFIGURING",
    "COMPLETING",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "RUNNING",
    "RESV_DEL_HOLD",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "TIMEOUT",
    "LAUNCH_FAILED",
    "RECONFIG_FAIL",
    "POWER_UP_NODE",
    "EXPEDITING",
]

ROLE = {"name": "main", "num_replicas": 2, "min_replicas": None}
RECORD = {"app": {"roles": [ROLE]}}


def test_table_is_total() -> None:
    """Every state that Slurm's documentation knows is in the table."""
    assert set(WORDS) <= set(STATES)
    assert [word for word in STATES if STATES[word] is AppState.SUCCEEDED] == ["COMPLETED"]


RELEASES = sorted(Path(__file__).with_name("releases").glob("*.json"))
SAID = {
    "runs": "RUNNING",
    "waits": "PENDING",
    "needs a node for itself": "PENDING",
    "fails": "FAILED",
    "succeeds": "COMPLETED",
    "is cancelled": "CANCELLED",
    "is suspended": "SUSPENDED",
    "depends on a failure": "PENDING",
    "has two parts": "RUNNING",
}


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_what_releases_say(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that a release knows are in the table, and its tools' lines are read (see
    ``record.py``).
    """
    told = json.loads(path.read_text())
    assert set(told["words"]) <= set(STATES)
    assert len(told["words"]) > 20
    answer = commands.Answer(0, "", "")
    monkeypatch.setattr(commands, "run", lambda *_: answer)
    for name, state in SAID.items():
        answer = commands.Answer(0, "\n".join(told["jobs"][name]["squeue"]), "")
        (job,) = squeue().values()
        assert (job.state, job.name, job.comment) == (state, name.replace(" ", "-"), "its comment")
        answer = commands.Answer(0, "\n".join(told["jobs"][name]["record"]), "")
        for recorded in sacct(["1"], completed=True).values():
            assert clean(recorded.state) == state
    answer = commands.Answer(1, "", told["unknown"])
    assert squeue("-j", "99999") == {}


@given(st.text(max_size=30))
def test_unknown_words_are_unknown(word: str) -> None:
    """A word of a later version is UNKNOWN, never an error, never an end."""
    if not any(
        part.split(" ")[0].rstrip("+").upper() in STATES for part in word.replace(",", " ").split()
    ):
        assert to_state(word) is AppState.UNKNOWN
        assert not ended(word)


def test_words_with_more() -> None:
    """What sacct and newer releases add is passed over."""
    assert to_state("CANCELLED by 1000") is AppState.CANCELLED
    assert to_state("CANCELLED+") is AppState.CANCELLED
    assert to_state("RUNNING,SIGNALING") is AppState.RUNNING


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
def test_parts_together(words: list[str]) -> None:
    """A job has ended when all of its parts have, and well when all of them have."""
    word = combined(words)
    assert word in words
    assert ended(word) == all(ended(each) for each in words)
    assert (to_state(word) is AppState.SUCCEEDED) == all(
        to_state(each) is AppState.SUCCEEDED for each in words
    )


def test_components_are_one_job() -> None:
    """Rows of a heterogeneous job are one job.

    The cause of a failure precedes its effects.
    """
    rows = [
        ("5+0", "a", "CANCELLED", "", "n1", "", ""),
        ("5+1", "a", "NODE_FAIL", "x", "n2", "", ""),
        ("6+0", "b", "COMPLETED", "", "n1", "", ""),
        ("6+1", "b", "RUNNING", "", "n1", "", ""),
        ("7", "c", "NODE_FAIL", "", "", "", ""),
        ("7", "c", "COMPLETED", "", "", "", ""),
    ]
    jobs = _merge(rows, "test")
    assert (jobs["5"].state, jobs["5"].reason, jobs["5"].nodes) == ("NODE_FAIL", "x", "n1,n2")
    assert jobs["6"].state == "RUNNING"
    assert jobs["7"].state == "COMPLETED"  # started again: the last word counts


def _judge(word: str, state: str | None = "RUNNING", **more: object) -> AppStatus:
    replicas = [{"id": k, "state": "RUNNING"} for k in range(2)]
    written = (
        None
        if state is None
        else {"state": state, "roles": [{"role": "main", "replicas": replicas}], **more}
    )
    return decide(RECORD, written, Job("1", "a", word))


@given(st.sampled_from([*WORDS, "NEWER_WORD"]), st.sampled_from([None, "PENDING", "RUNNING"]))
def test_slurm_decides_where_the_wrapper_wrote_no_end(word: str, state: str | None) -> None:
    """The table gives the state, but COMPLETED alone is no success. Nothing runs after an end."""
    status = _judge(word, state)
    assert status.state is (AppState.FAILED if word == "COMPLETED" else to_state(word))
    if status.is_terminal():
        assert all(is_terminal(replica.state) for replica in status.roles[0].replicas)
    if status.state in (AppState.FAILED, AppState.UNKNOWN):
        assert word in status.msg


def test_who_cancelled_a_job_is_told() -> None:
    """Accounting has the number of who cancelled a job. The controller does not say it."""
    assert _judge("CANCELLED by 1000").msg == "Slurm job 1 was cancelled by user 1000"
    assert _judge("CANCELLED").msg == "Slurm job 1 was cancelled"


@given(
    st.sampled_from([*WORDS, "NEWER_WORD"]), st.sampled_from(["SUCCEEDED", "FAILED", "CANCELLED"])
)
def test_the_end_that_the_wrapper_wrote_is_decisive(word: str, state: str) -> None:
    """A keeper saw every replica end, and Slurm's answer cannot change that."""
    assert str(_judge(word, state).state) == state


def test_missing_is_never_completed() -> None:
    """A job that nobody knows is UNKNOWN, unless its wrapper wrote that Slurm was ending it."""
    running = {"state": "RUNNING", "roles": []}
    assert decide(RECORD, running, None).state is AppState.UNKNOWN
    assert decide(RECORD, None, None).state is AppState.UNKNOWN
    told = {**running, "signalled": True}
    assert decide(RECORD, told, None).state is AppState.FAILED
    asked = decide(RECORD, told, None, request="cancelled on request")
    assert (asked.state, asked.msg) == (AppState.CANCELLED, Gang.ON_REQUEST)


@pytest.mark.parametrize(
    ("replicas", "needed", "said"),
    [
        (["FAILED", "SUCCEEDED"], None, "1 replica(s) of role 'main' failed"),
        (["RUNNING", "SUCCEEDED"], None, "no record that the program ended well"),
        (["PENDING", "PENDING"], None, "ended before the program started"),
        (["FAILED", "SUCCEEDED"], 1, ""),
        (["SUCCEEDED", "SUCCEEDED"], None, ""),
    ],
)
def test_completed_is_checked_against_the_replicas(
    replicas: list[str], needed: int | None, said: str
) -> None:
    """Slurm's COMPLETED is a success only if so many replicas as are needed have recorded one."""
    state = {
        "state": "RUNNING",
        "roles": [
            {
                "role": "main",
                "replicas": [{"id": k, "state": word} for k, word in enumerate(replicas)],
            }
        ],
    }
    role = {**ROLE, "min_replicas": needed}
    status = decide({"app": {"roles": [role]}}, state, Job("1", "a", "COMPLETED"))
    assert status.state is (AppState.FAILED if said else AppState.SUCCEEDED)
    assert said in status.msg


def test_dependency_that_can_never_be_satisfied_is_an_end() -> None:
    """Slurm leaves such a job in its queue for ever, or cancels it. Both are a failure."""
    for word in ("PENDING", "CANCELLED"):
        status = decide(RECORD, None, Job("1", "a", word, "DependencyNeverSatisfied"))
        assert status.state is AppState.FAILED


@pytest.mark.parametrize("word", ["PENDING", "REQUEUED"])
def test_what_slurm_interrupted_waits(word: str) -> None:
    """A replica that Slurm has ended waits again with its job. Nobody has cancelled it."""
    ran = {"id": 0, "state": "CANCELLED", "exit_code": 75, "start_time": 1.0, "end_time": 2.0}
    written = {"state": "RUNNING", "roles": [{"role": "main", "replicas": [ran]}]}
    status = decide(RECORD, written, Job("1", "a", word, "Resources"))
    replica = status.roles[0].replicas[0]
    assert (replica.state, replica.exit_code) == (AppState.PENDING, 75)
    assert status.msg.startswith("interrupted, and waiting in Slurm's queue as job 1")
    assert decide(RECORD, None, Job("1", "a", word)).msg.startswith("waiting in Slurm's queue")
