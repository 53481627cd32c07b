"""Airflow gets events of OpenLineage, as its own listener writes them, and of assets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflow_server import AirflowServer

END = {"good": "COMPLETE", "bad": "FAIL"}


def events(folder: Path, run_id: str) -> list[dict[str, Any]]:
    """Return the events of tasks of a DAG run."""
    found = []
    for path in folder.iterdir():
        try:
            event = json.loads(path.read_text())
        except ValueError:
            continue  # being written
        if event["run"]["facets"].get("airflow", {}).get("dagRun", {}).get("run_id") == run_id:
            found.append(event)
    return found


def test_events_of_tasks(airflow: AirflowServer) -> None:
    """Artifacts are outputs, sources inputs, and results a facet, whatever the task and its end."""
    folder = Path(
        json.loads(airflow.environment["AIRFLOW__OPENLINEAGE__TRANSPORT"])["log_file_path"]
    ).parent
    run = airflow.trigger("lineage")
    for mode in ("sync", "deferrable"):
        for word, end in END.items():
            task = f"{mode}_{word}"
            run.wait(task_id=task, timeout=120)

            def ended(task: str = task, end: str = end) -> dict[str, Any] | None:
                return next(
                    (
                        each
                        for each in events(folder, run.run_id)
                        if each["job"]["name"] == f"lineage.{task}" and each["eventType"] == end
                    ),
                    None,
                )

            event = airflow.until(ended, f"the event {end} of {task}")
            facet = event["run"]["facets"]["transload"]
            assert facet["handle"] == run.xcom("handle", task)
            assert [(each["namespace"], each["name"]) for each in event["inputs"]] == [
                ("s3://bucket", "data/train.csv")
            ]
            namespace = airflow.environment["AIRFLOW__OPENLINEAGE__NAMESPACE"]
            parent = f"parent {namespace}/lineage.{task}/{event['run']['runId']}"
            # the log may be read later than the event
            airflow.until(
                lambda task=task, parent=parent: parent in run.log(task),
                "the job says what it was told",
            )
            if word == "good":
                assert [(each["namespace"], each["name"]) for each in event["outputs"]] == [
                    ("file", "/models/1.pt")
                ]
                assert facet["state"] == "SUCCEEDED"
                assert facet["results"] == {"final": {"accuracy": 0.5}}
            else:
                assert facet["state"] == "FAILED"
    told = airflow.call("GET", f"/api/v2/assets/events?source_run_id={quote(run.run_id)}&limit=50")[
        "asset_events"
    ]
    made = [each for each in told if each["source_dag_id"] == "lineage"]
    assert {each["source_task_id"] for each in made} == {"sync_good", "deferrable_good"}, (
        "only of apps that ended well"
    )
    for task in ("sync_good", "deferrable_good"):
        by_uri = {each["uri"]: each["extra"] for each in made if each["source_task_id"] == task}
        common = {"handle": run.xcom("handle", task), "results": {"final": {"accuracy": 0.5}}}
        assert by_uri["s3://bucket/other"] == common
        artifact = by_uri["file:///models/1.pt"].pop("artifact")
        assert (artifact["name"], artifact["path"]) == ("model", "/models/1.pt")
        assert by_uri["file:///models/1.pt"] == common


def test_assets_known_only_at_run_time(caplog: pytest.LogCaptureFixture) -> None:
    """Each artifact is an asset of an alias. One whose URI Airflow refuses fails nothing."""
    from airflow.sdk import Asset, AssetAlias
    from airflow.sdk.execution_time.context import OutletEventAccessors

    from transload.runner import AppResults
    from transload.specs import AppState
    from transload_airflow.lineage import announce_assets

    artifacts = {
        "model": {"path": "/models/1.pt"},
        "data": {"path": "s3://bucket/a b"},
        "plain": {"path": "out/x"},
    }
    artifacts |= {"slash": {"path": "s3://other/y/"}, "wrong": {"path": "airflow://reserved"}}
    results = AppResults(
        "local://airflow/x", AppState.SUCCEEDED, {"0": {"x": float("nan")}}, {}, artifacts
    )
    alias, asset, missing = AssetAlias("made"), Asset("s3://other/y"), Asset("s3://other/z")
    events = OutletEventAccessors()
    announce_assets({"outlet_events": events}, [alias, asset, missing], results)
    assert {
        each.dest_asset_key.uri: each.extra["artifact"]["name"]
        for each in events[alias].asset_alias_events
    } == {
        "file:///models/1.pt": "model",
        "s3://bucket/a b": "data",
        "file:///out/x": "plain",
        "s3://other/y": "slash",
    }
    common = {"handle": "local://airflow/x", "results": {"0": {"x": "NaN"}}}
    assert events[asset].extra == {**common, "artifact": {"name": "slash", "path": "s3://other/y/"}}
    assert events[missing].extra == common
    assert "wrong cannot be reported: Asset scheme 'airflow' is reserved" in caplog.text
