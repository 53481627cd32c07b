"""Test what is asked of Slurm's tools, and what follows from answers that scripts give."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from transload.errors import (
    AppExists,
    AppNotFound,
    SchedulerUnavailable,
    SubmitError,
    TransloadError,
    UnsupportedFeature,
)
from transload.schedulers import ListAppResponse, LogPage, LogQuery, Stream
from transload.specs import AppState, Progress
from transload_slurm import jobs, wire
from transload_slurm.commands import Answer
from transload_slurm.jobs import Jobs

Play = Callable[..., None]

FORGOTTEN = "slurm_load_jobs error: Invalid job id specified"
DISABLED = "Slurm accounting storage is disabled"
NO_RECORD = "Slurm job completion is disabled"
AWAY = """sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection: Connection refused
sacct: error: Problem talking to the database: Connection refused"""


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Have a tool answer by a script, as in ``play("sacct", out="7|a|COMPLETED|n1")``.

    With ``err`` it fails.
    """
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(tool: str, *, out: str = "", err: str = "", record_err: str = NO_RECORD) -> None:
        said = [f"cat >&2 <<'END'\n{err}\nEND\nexit 1"] if err else [f"cat <<'END'\n{out}\nEND"]
        if tool == "sacct":  # the record of completed jobs is asked with -c
            said.insert(0, f'case " $* " in *" -c "*) echo "{record_err}" >&2; exit 1;; esac')
        path = tmp_path / tool
        path.write_text("\n".join(["#!/bin/sh", *said, ""]))
        path.chmod(0o755)

    make("squeue", err=FORGOTTEN)
    return make


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that goes on when told, by ``clock.now += 10``."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_database_that_restarts_is_asked_again_soon(play: Play, clock: SimpleNamespace) -> None:
    """A sacct that fails once is left alone for seconds.

    A job that it alone knows is not given up.
    """
    asked = Jobs()
    play("sacct", err=AWAY)
    assert asked.ask(["7"]) == {"7": None}
    play("sacct", out="7|a|FAILED|n1")
    clock.now += 6
    assert asked.ask(["7"]) == {"7": None}  # not at once: each try may take seconds
    clock.now += 6
    found = asked.ask(["7"])["7"]
    assert found is not None
    assert (found.state, found.source) == ("FAILED", "sacct")


def test_cluster_without_accounting_is_seldom_asked(play: Play, clock: SimpleNamespace) -> None:
    """A sacct that keeps nothing is left alone for ten minutes, and is then tried again."""
    asked = Jobs()
    play("sacct", err=DISABLED)
    assert asked.ask(["7"]) == {"7": None}
    assert asked.queries == 3
    play("sacct", out="7|a|FAILED|n1")
    for _ in range(9):
        clock.now += 60
        assert asked.ask(["7"]) == {"7": None}
    assert asked.queries == 12  # squeue alone
    clock.now += 90
    found = asked.ask(["7"])["7"]
    assert found is not None
    assert found.state == "FAILED"


def test_each_record_is_let_be_on_its_own(play: Play, clock: SimpleNamespace) -> None:
    """That no record of completed jobs is kept says nothing of the database."""
    asked = Jobs()
    play("sacct", out="")
    assert asked.ask(["7"]) == {"7": None}
    play("sacct", out="7|a|COMPLETED|n1")
    clock.now += 6
    assert asked.ask(["7"])["7"] is not None


@pytest.mark.parametrize("broken", ["missing", "hangs"])
def test_sacct_that_cannot_be_used_hides_nobody(
    play: Play, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str
) -> None:
    """Without an answer from sacct, what squeue says of other jobs still counts."""
    play("squeue", out="8|b|RUNNING|None|n1|2026-01-01T00:00:00|(null)")
    monkeypatch.setenv("PATH", f"{tmp_path}:{tmp_path}/bin")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cat").symlink_to("/bin/cat")
    if broken == "hangs":
        real = jobs.commands.run

        def run(command: list[str], timeout: float) -> Answer:
            if command[0] == "sacct":
                raise SchedulerUnavailable("sacct did not answer within 60 s")
            return real(command, timeout)

        monkeypatch.setattr(jobs.commands, "run", run)
    found = Jobs().ask(["7", "8"])
    assert found["7"] is None
    assert found["8"] is not None
    assert found["8"].state == "RUNNING"


@pytest.mark.parametrize(
    ("err", "too_late"),
    [
        ("scancel: error: Kill job error on job id 5: Invalid job id specified", True),
        (
            "scancel: error: Kill job error on job id 5: Job/step already completing or completed",
            True,
        ),
        ("scancel: error: Kill job error on job id 5: Access/permission denied", False),
        (
            "x: 5_0: Job/step already completing or completed\nx: 5_1: Access/permission denied",
            False,
        ),
        ("", False),
    ],
)
def test_when_scancel_comes_too_late(err: str, too_late: bool) -> None:
    """Only jobs that have ended, all of them, make a failed scancel none."""
    assert Answer(1, "", err).too_late is too_late
    assert not Answer(0, "", err).too_late


def test_one_query_serves_all_who_ask_meanwhile(play: Play, tmp_path: Path) -> None:
    """A hundred threads that ask for three hundred jobs share a few queries."""
    rows = "\\n".join(f"{number}|a|RUNNING|None|n1|N/A|(null)" for number in range(300))
    (tmp_path / "squeue").write_text(
        f"#!/bin/sh\necho $$ >> {tmp_path}/calls\nsleep 0.3\nprintf '{rows}\\n'\n"
    )
    (tmp_path / "squeue").chmod(0o755)
    asked = Jobs()
    with ThreadPoolExecutor(100) as pool:
        found = list(pool.map(lambda number: asked.ask([str(number)])[str(number)], range(300)))
    assert all(job is not None and job.state == "RUNNING" for job in found)
    assert len((tmp_path / "calls").read_text().split()) <= 20


def test_processes_of_a_machine_ask_as_often_as_one(
    play: Play, clock: SimpleNamespace, tmp_path: Path
) -> None:
    """Ten processes that watch twenty jobs each ask at most twelve questions a minute together."""
    play("squeue", out="\n".join(f"{number}|a|RUNNING|None|n1|N/A|(null)" for number in range(200)))
    helpers = [Jobs(str(tmp_path / "shared")) for _ in range(10)]
    for second in range(120):
        clock.now += 1.0
        if second == 60:
            before = sum(helper.queries for helper in helpers)
        for number, helper in enumerate(helpers):
            if (second + number) % 10 == 0:
                found = helper.ask([str(20 * number + each) for each in range(20)])
                assert {job.state for job in found.values() if job} == {"RUNNING"}
    assert 4 <= sum(helper.queries for helper in helpers) - before <= 12


def test_what_was_done_to_a_job_makes_a_query_under_way_worthless(
    play: Play, tmp_path: Path
) -> None:
    """Whoever asks after a ``scancel`` is not told what a query that was under way before has
    seen.
    """
    (tmp_path / "squeue").write_text(
        f"#!/bin/sh\nword=$(cat {tmp_path}/word)\ntouch {tmp_path}/asked\n"
        f'until test -e {tmp_path}/go; do sleep 0.05; done\necho "7|a|$word|None|n1|N/A|(null)"\n'
    )
    (tmp_path / "squeue").chmod(0o755)
    (tmp_path / "word").write_text("RUNNING")
    asked = Jobs()
    assert asked.ask(["7"], 0.0, (tmp_path / "asked").exists) == {}
    (tmp_path / "word").write_text("CANCELLED")
    asked.drop("7")
    (tmp_path / "go").touch()
    found = asked.ask(["7"])["7"]
    assert found is not None
    assert found.state == "CANCELLED"


def test_values_that_travel() -> None:
    """What a helper on a login node is asked, and says, arrives as it was, whatever its names."""
    progress = Progress(0.5, 5, 10, at=1.0)
    page = LogPage(["a\n", "b"], "1:2", complete=False, stamps=[(0, 1.5), (1, 2.5)], left=None)
    for value in (
        [ListAppResponse("a", AppState.RUNNING, progress=progress)],
        {"dict": {"set": 1, "AppState": None}, "tuple": ("x", ["y"]), "": {"z", "y"}},
        page,
        LogQuery("main", 0, Stream.STDERR, since=1.0),
    ):
        assert wire.from_json(json.loads(json.dumps(wire.to_json(value)))) == value


@pytest.mark.parametrize(
    "error",
    [
        SubmitError("not now", transient=True, lines=["why"]),
        AppExists("here"),
        AppNotFound("there"),
        UnsupportedFeature("no mounts", "roles[0].mounts"),
    ],
)
def test_errors_that_travel(error: TransloadError) -> None:
    """An error of the scheduler on the login node is the same error here."""
    found = wire.error_from_json(json.loads(json.dumps(wire.error_to_json(error))))
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
