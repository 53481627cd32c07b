"""One MLflow run has all attempts, with interruptions, retries and tries of a step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from transload.errors import AppFailed
from transload.pipelines import ExecutionOptions, Identity, Launch
from transload.runner import get_runner
from transload.specs import AppDef, Notice, Role
from transload_mlflow import MlflowTracker
from transload_mlflow.convert import LastEnd, Sharing
from transload_testing.steps import PlainStep

FIRST = "local://s/train-0"
SECOND = "local://s/train-1"


def sharing(handle: str, created: float, name: str = "train-0") -> Sharing:
    """Return the sharing of a job with the checkpoints of the first one."""
    return Sharing.of(handle, name, created)


@pytest.mark.unit
def test_who_shares_a_run() -> None:
    """The name of the checkpoints decides, on one scheduler and in one session."""
    assert sharing(FIRST, 1.0).key == sharing(SECOND, 2.0).key
    others = [
        sharing(SECOND, 2.0, "train-1"),
        sharing("slurm://s/train-0", 1.0),
        sharing("local://t/train-0", 1.0),
    ]
    assert len({each.key for each in [*others, sharing(FIRST, 1.0)]}) == 4


@pytest.mark.unit
def test_whose_end_counts() -> None:
    """A later job's end is written over an earlier one's, and never the other way round."""
    end = LastEnd.read({"transload.ended": LastEnd("abc", 1.5).text()})
    assert end == LastEnd("abc", 1.5)
    assert end.is_before(FIRST, sharing(FIRST, 2.0))
    assert not end.is_before(FIRST, sharing(FIRST, 1.0))
    for tags in ({}, {"transload.ended": ""}, {"transload.ended": "abc"}):
        assert LastEnd.read(tags) is None


def test_a_second_try_goes_on_in_the_run(sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second try's first write opens the run again, and either handle reads both.

    Its end is the run's, whoever asks once more for the first one.
    """

    def job(handle: str, name: str) -> MlflowTracker:
        monkeypatch.setenv("TRANSLOAD_JOB_ID", handle)
        monkeypatch.setenv("TRANSLOAD_CHECKPOINT_NAME", name)
        return MlflowTracker(sqlite_uri)

    def state() -> tuple[str, str]:
        found = [MlflowTracker(sqlite_uri)._runs_of(handle) for handle in (FIRST, SECOND)]
        ((first,), (second,)) = found
        assert first.info.run_id == second.info.run_id
        return first.info.status, first.data.tags["mlflow.runName"]

    outside = MlflowTracker(sqlite_uri)
    job(FIRST, "train-0").add_metadata(FIRST, lr=0.1)
    outside.finish(FIRST, "FAILED", sharing=sharing(FIRST, 1.0))
    job(SECOND, "train-0").add_metadata(SECOND, epochs=3)
    assert state() == ("RUNNING", FIRST)
    outside.finish(FIRST, "FAILED", sharing=sharing(FIRST, 1.0))
    assert state() == ("RUNNING", FIRST)
    outside.finish(SECOND, sharing=sharing(SECOND, 2.0))
    outside.finish(FIRST, "FAILED", sharing=sharing(FIRST, 1.0))
    assert state() == ("FINISHED", FIRST)
    assert outside.metadata(FIRST) == outside.metadata(SECOND) == {"lr": 0.1, "epochs": 3}
    assert outside.run_ids() == [FIRST]
    job("local://s/new", "new").add_metadata("local://s/new", lr=0.2)
    assert outside.metadata("local://s/new") == {"lr": 0.2}
    assert outside.run_ids() == ["local://s/new", FIRST]


def test_what_is_written_of_another_job_stays_apart(
    sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the checkpoints says nothing about the run that launched a job."""
    monkeypatch.setenv("TRANSLOAD_JOB_ID", SECOND)
    monkeypatch.setenv("TRANSLOAD_CHECKPOINT_NAME", "train-0")
    tracker = MlflowTracker(sqlite_uri)
    tracker.add_metadata(SECOND, lr=0.1)
    tracker.add_metadata("local://s/parent", lr=0.2)
    assert tracker.run_ids() == ["local://s/parent", SECOND]


PROGRAM = """
import sys, time
from transload.runtime import (
    exit_interrupted,
    interrupted,
    latest_checkpoint,
    report,
    save_checkpoint,
)

found = latest_checkpoint()
first = 0
if found:
    first = int((found / "next").read_text())
interrupted()
for step in range(first, first + 3):
    report(step=step, loss=1 / (step + 1))
save_checkpoint(lambda folder: (folder / "next").write_text(str(first + 3)))
if first == 0:
    while not interrupted():
        time.sleep(0.01)
    exit_interrupted()
if first == 3:
    sys.exit(3)
"""
"""Is interrupted after three steps, fails after three more, and ends after the last three."""


def test_an_interruption_and_a_second_try(
    transload_home: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """An interrupted and failed job and its step's next try are one run with all steps in order.

    It ends as the last try did.
    """
    monkeypatch.setenv("TRANSLOAD_TRACKERS", "mlflow")
    monkeypatch.setenv("TRANSLOAD_TRACKER_MLFLOW_CONFIG", sqlite_uri)
    words = ["-c", PROGRAM]
    role = Role("main", "", entrypoint=sys.executable, args=words, checkpoints=True)
    role.notice = Notice(2)
    app = AppDef("train", [role], timeout=60.0, segment=4.0)
    identity = Identity("tests", ("here",), ("train",))
    handles = []
    tracker = MlflowTracker(sqlite_uri)

    def ended(status: str) -> list[Any]:
        return [run for run in tracker._runs_of(handles[-1]) if run.info.status == status]

    with get_runner("tests") as runner:
        launch = Launch(app=app, scheduler="local")
        first = PlainStep(runner, launch, identity, ExecutionOptions())
        with pytest.raises(AppFailed):
            first.run()
        handles.append(first.handle)
        interruptions = first.status.roles[0].replicas[0].interruptions
        (failed,) = eventually(lambda: ended("FAILED"), timeout=60)
        second = PlainStep(runner, launch, identity, ExecutionOptions())
        second.run()
        handles.append(second.handle)
        (run,) = eventually(lambda: ended("FINISHED"), timeout=60)
    assert interruptions == 1
    assert handles[0] != handles[1]
    assert run.info.run_id == failed.info.run_id
    assert tracker.run_ids() == handles[:1]
    points = tracker.client.get_metric_history(run.info.run_id, "loss")
    points = sorted(points, key=lambda point: point.timestamp)
    assert [point.step for point in points] == list(range(9))
    assert run.data.metrics["loss"] == 1 / 9
