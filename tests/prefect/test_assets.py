"""Prefect and the tracker have what a job made and what it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jobs import artifact, job

from transload.errors import ConfigError
from transload.tracker import FsspecTracker


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FsspecTracker:
    """The tracker that every app of the test has."""
    monkeypatch.setenv("TRANSLOAD_TRACKERS", "fsspec")
    monkeypatch.setenv("TRANSLOAD_TRACKER_FSSPEC_CONFIG", str(tmp_path / "runs"))
    return FsspecTracker(None, str(tmp_path / "runs"))


def test_assets(host: Any, eventually: Any) -> None:
    """Asked for, assets are materialized by the task. The flow itself makes none."""
    from prefect import flow, task

    from transload_prefect import run_app

    @task
    def ordinary() -> Any:
        return run_app(job, assets=["s3://bucket/model"])

    @flow
    def work() -> Any:
        with pytest.raises(ConfigError, match="only a task"):
            run_app(job, assets=True)
        return ordinary()

    results = work()
    found = eventually(lambda: host.events("s3://bucket/model"), 60)
    assert found[0]["event"] == "prefect.asset.materialization.succeeded"
    assert found[0]["payload"]["transload.handle"] == results.handle


def test_assets_from_the_tracker(host: Any, tracker: FsspecTracker, eventually: Any) -> None:
    """Each artifact that the tracker knows is an asset, made from those of upstream tasks.

    What cannot be an asset is left out.
    """
    from prefect import flow

    from transload_prefect import app_task

    make = app_task(artifact, name="make", assets=True)

    @flow
    def work() -> Any:
        first = make.submit(path="s3://bucket/first")
        second = make.submit(path="s3://bucket/second", launch={"parent_run_id": first})
        return first.result(), second.result()

    first, second = work()
    made = eventually(lambda: host.events("s3://bucket/second"), 30)[0]
    assert made["event"] == "prefect.asset.materialization.succeeded"
    assert made["payload"] == {"transload.handle": second.handle, "name": "model", "step": 7}
    related = {
        each["prefect.resource.id"]: each["prefect.resource.role"] for each in made["related"]
    }
    assert related["s3://bucket/first"] == "asset"
    assert second.artifacts["odd"]["path"] == "no uri at all?"
    assert list(tracker.run_ids(parent_run_id=first.handle)) == [second.handle]
    assert [each.source_run_id for each in tracker.sources(second.handle)] == [first.handle]


def test_an_app_without_artifacts_makes_no_asset(
    host: Any, tracker: FsspecTracker, eventually: Any
) -> None:
    """Asked for assets, an app whose tracker knows of none makes none, and ends well."""
    from prefect import flow
    from prefect.runtime import flow_run

    from transload_prefect import app_task

    @flow
    def work() -> Any:
        return app_task(job, assets=True)().state.name, str(flow_run.id)

    state, flow_run_id = work()
    assert state == "SUCCEEDED"
    eventually(lambda: host.flow_run(flow_run_id)["state_type"] == "COMPLETED", 60)
    events = host.post(
        "/events/filter", filter={"event": {"prefix": ["prefect.asset."]}}, limit=50
    )["events"]
    assert flow_run_id not in json.dumps(events)
