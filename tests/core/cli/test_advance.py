"""What a person sees of progress, interruptions, limits and checkpoints."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from transload.cli.show import StatusNotes, interruptions_text, progress_text
from transload.specs import (
    AppState,
    AppStatus,
    Progress,
    ReplicaAttempt,
    ReplicaStatus,
    RoleStatus,
)

TRAIN = """
import time
from transload.runtime import (
    exit_interrupted,
    interrupted,
    latest_checkpoint,
    progress,
    save_checkpoint,
)
begin = 0
if latest_checkpoint() is not None:
    begin = int((latest_checkpoint() / "step").read_text())
interrupted()
for step in range(begin, 40):
    progress(step=step, total=40)
    time.sleep(0.1)
    if interrupted():
        save_checkpoint(lambda folder: (folder / "step").write_text(str(step)))
        exit_interrupted()
progress(step=40, total=40)
"""


def status(progress: Progress | None = None, **values: Any) -> AppStatus:
    """Return the status of a job of one replica that runs."""
    replica = ReplicaStatus(0, AppState.RUNNING, "trainer", "h", **values)
    return AppStatus(AppState.RUNNING, roles=[RoleStatus("trainer", [replica])], progress=progress)


def begun() -> StatusNotes:
    """Return the notes of a log that says already that the job runs."""
    notes = StatusNotes(beside_line=False)
    assert notes.lines(status()) == ["RUNNING"]
    return notes


class Terminal(io.StringIO):
    """A stream of some encoding."""

    encoding = "utf-8"  # type: ignore[assignment]


def test_a_bar() -> None:
    """A terminal gets a bar, where its encoding has one, and a log gets words."""
    now = time.time()
    found = status(Progress(0.71, 710, 1000, 725.0, now, "epoch 3"))
    terminal = Terminal()
    text = progress_text(found, terminal)
    assert text == "trainer ███████░░░ 71 % step 710/1000 · 12 min 04 s left · epoch 3"
    terminal.encoding = "latin-1"
    assert progress_text(found, terminal).startswith("trainer #######--- 71 %")
    assert progress_text(found) == "71 %, step 710/1000, 12 min 04 s left, epoch 3"
    late = status(Progress(0.71, eta_seconds=5.0, at=now - 6))
    assert progress_text(late) == "71 %"
    found.state = AppState.FAILED
    assert progress_text(found) == "71 %, step 710/1000, epoch 3"


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (None, ""),
        (Progress(step=7), "step 7"),
        (Progress(text="warming up"), "warming up"),
        (Progress(fraction=1.0), "100 %"),
        (Progress(fraction=0.999), "99 %"),
    ],
)
def test_what_is_not_known_is_not_shown(progress: Progress | None, text: str) -> None:
    """Each part stands alone."""
    assert progress_text(status(progress)) == text


def test_a_log_gets_a_line_for_each_twentieth() -> None:
    """A thousand steps are twenty lines and one, and a value that falls is a line too."""
    notes = begun()
    lines = [notes.lines(status(Progress(step / 1000))) for step in range(1001)]
    assert len([line for line in lines if line]) == 21
    assert notes.lines(status(Progress(0.5))) == ["50 %"]
    assert notes.lines(status(Progress(0.52))) == []
    mixed = begun()  # of two processes in turn
    found = [mixed.lines(status(Progress(0.2 + 0.5 * (at % 2), at=at))) for at in range(600)]
    assert 15 < len([line for line in found if line]) < 25
    silent = begun()
    shown = [silent.lines(status(Progress(step=step))) for step in range(3)]
    assert [bool(lines) for lines in shown] == [True, False, False]


def test_a_limit_that_will_not_hold() -> None:
    """It is said only where the present rate is surely too slow, and the job runs."""
    now = 1000.0
    slow = status(Progress(0.1, eta_seconds=7200.0, at=now))
    assert slow.late_for_limit(now) == ""
    slow.ends_by = now + 3600
    assert "needs 2 h 00 min more at its present rate, and has 1 h 00 min" in slow.late_for_limit(
        now
    )
    slow.ends_by = now + 7000
    assert slow.late_for_limit(now) == ""
    slow.ends_by = now + 60
    slow.state = AppState.CANCELLED
    assert slow.late_for_limit(now) == ""


def test_interruptions_and_their_causes() -> None:
    """Each cause is named once, in the order in which they came, without failures."""
    assert interruptions_text(status()) == ""
    causes = ["preempted", "failed", "node", "preempted"]
    earlier = [ReplicaAttempt(AppState.CANCELLED, cause=cause) for cause in causes]
    found = status(interruptions=3, restarts=1, earlier=earlier)
    assert interruptions_text(found) == "3 (preempted, node)"


@pytest.mark.timeout(120)
def test_a_job_in_segments(
    invoke: Any, plain_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` reports progress and each interruption, and so do status, list, describe and get."""
    Path("train.py").write_text(TRAIN, encoding="utf-8")
    options = ["--app-id", "mine", "--checkpoints", "--notice", "1s", "--segment", "2500ms"]
    done = invoke("run", *options, "--", sys.executable, "train.py")
    assert done.code == 0, done.err
    assert "interrupted (segment) at step " in done.err
    assert "; started again, 1st of 20" in done.err
    assert done.err.count("1st of 20") == 1  # it is said once, not with the next state too
    assert "%, step " in done.err

    assert "interruptions\t" in invoke("status", "mine").out
    found = invoke("status", "mine", "--json").json["status"]
    assert found["progress"]["fraction"] == 1.0
    times = [at for at, _ in found["progress"]["history"]]
    assert times == sorted(times)
    assert times[-1] - times[0] > 2.5  # over both segments
    (replica,) = found["roles"][0]["replicas"]
    assert replica["interruptions"] >= 1
    assert {each["cause"] for each in replica["earlier"]} == {"segment"}
    (row,) = invoke("list", "--json").json["apps"]
    assert row["progress"]["step"] == 40
    assert "history" not in row["progress"]
    assert invoke("list").out.rstrip().endswith("100 %")

    (folder,) = invoke("describe", "mine", "--json").json["checkpoints"]
    assert folder["size"] > 0
    shown = invoke("describe", "mine").out
    assert folder["path"] in shown
    assert "100 %, step 40/40, " in shown
    assert " steps a " in shown
    assert "notice\tTERM, 1.0 s before the end" in shown
    assert "segment\t2.5 s" in shown


@pytest.mark.timeout(120)
def test_a_stall_is_said_once(invoke: Any, plain_folder: str) -> None:
    """`run` says that nothing is heard of a job any more, and goes on all the same."""
    Path("still.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(3)\n")
    done = invoke("run", "--stall-after", "1s", "--", sys.executable, "still.py")
    assert done.code == 0
    assert done.err.count("has stalled: no progress, log line or result for 1 s") == 1


@pytest.mark.timeout(120)
def test_run_warns_of_a_limit_that_is_too_short(invoke: Any, plain_folder: str) -> None:
    """It is said once, long before the limit."""
    code = """
import time
from transload.runtime import progress
for step in range(60):
    progress(step=step, total=1000)
    time.sleep(0.1)
"""
    Path("slow.py").write_text(code, encoding="utf-8")
    done = invoke("run", "--time-limit", "30s", "--", sys.executable, "slow.py")
    assert done.code == 0, done.err
    assert done.err.count("it will not end within its limit of time") == 1
