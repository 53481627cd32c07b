"""What a job made is seen as events of Airflow's assets."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from airflow_server import AirflowServer


def test_assets_of_tasks(airflow: AirflowServer) -> None:
    """An artifact is the event of its asset, from tasks in place and deferred that end well."""
    run = airflow.trigger("assets")
    for mode in ("sync", "deferrable"):
        run.wait("success", task_id=f"{mode}_good", timeout=120)
        run.wait("failed", task_id=f"{mode}_bad", timeout=120)
    told = airflow.call("GET", f"/api/v2/assets/events?source_run_id={quote(run.run_id)}&limit=50")[
        "asset_events"
    ]
    made = [each for each in told if each["source_dag_id"] == "assets"]
    assert {each["source_task_id"] for each in made} == {"sync_good", "deferrable_good"}
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
    from transload_airflow.assets import announce_assets

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
