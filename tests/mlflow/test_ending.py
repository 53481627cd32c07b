"""The end of an app in MLflow: its state, its results as metrics, its place below its parent run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner, get_runner
from transload.specs import AppDef, Role
from transload_mlflow import MlflowTracker

_REPORT = """printf '{"schema":1,"key":"%s","results":{"loss":%s}}' $1 $2 > "$TRANSLOAD_TRACKER_BASE/$1.json\""""


@pytest.fixture
def runner(transload_home: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """A runner whose jobs track in MLflow."""
    monkeypatch.setenv("TRANSLOAD_TRACKERS", "mlflow")
    monkeypatch.setenv("TRANSLOAD_TRACKER_MLFLOW_CONFIG", sqlite_uri)
    with get_runner("tests") as made:
        yield made


def _app(script: str) -> AppDef:
    return AppDef("job", [Role("main", "", entrypoint="sh", args=["-c", f"report() {{ {_REPORT}; }}; {script}"])])


@pytest.mark.parametrize(
    ("script", "status"), [("report final 0.5", "FINISHED"), ("report final 0.5; exit 3", "FAILED"), ("", "KILLED")]
)
def test_an_app_that_ends_ends_its_run(
    runner: Runner, sqlite_uri: str, eventually: Any, script: str, status: str
) -> None:
    """Its MLflow run ends as it did; it stayed RUNNING for ever."""
    tracker = MlflowTracker(sqlite_uri)
    handle = runner.run(_app(script or "exec sleep 100"))
    if not script:
        tracker.add_metadata(handle, lr=0.1)
        runner.cancel(handle)
    assert runner.wait(handle, timeout=60) is not None
    ended = eventually(lambda: [run for run in tracker._runs_of(handle) if run.info.status != "RUNNING"], timeout=60)
    assert [run.info.status for run in ended] == [status]
    metrics = ended[0].data.metrics
    used = {name: metrics.pop(name) for name in list(metrics) if name.startswith("system/")}
    assert metrics == ({"loss": 0.5} if script else {"lr": 0.1})
    if script:
        assert set(used) == {"system/peak_memory_megabytes", "system/cpu_seconds"}
        assert used["system/peak_memory_megabytes"] > 0.1
    assert runner.wait(handle, timeout=60) is not None  # told again: nothing changes


def test_a_key_that_is_a_number_is_the_step(runner: Runner, sqlite_uri: str, eventually: Any) -> None:
    """Results of each epoch are a curve in MLflow; a key that is a name is part of the metric's."""
    tracker = MlflowTracker(sqlite_uri)
    handle = runner.run(_app("report 0 0.9; report 1 0.5; report 12 0.25; report valid 0.3"))
    assert runner.wait(handle, timeout=60) is not None
    (run,) = eventually(lambda: [r for r in tracker._runs_of(handle) if r.info.status == "FINISHED"], timeout=60)
    curve = tracker.client.get_metric_history(run.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in curve) == [(0, 0.9), (1, 0.5), (12, 0.25)]
    assert run.data.metrics["valid.loss"] == 0.3


def test_a_run_is_nested_below_its_parent(sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that launched a job is MLflow's parent run; what it was made from otherwise is not."""
    tracker = MlflowTracker(sqlite_uri)
    monkeypatch.setenv("TRANSLOAD_PARENT_RUN_ID", "local://s/search")
    tracker.add_source("local://s/trial", "local://s/search")
    tracker.add_source("local://s/trial", "local://s/data", "table")
    (parent,), (trial,) = tracker._runs_of("local://s/search"), tracker._runs_of("local://s/trial")
    assert trial.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert tracker._runs_of("local://s/data") == []
    assert "mlflow.parentRunId" not in parent.data.tags
