"""The triggerer and API server of a real Airflow use a connection as a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow_server import AirflowServer
from scripts import held

from transload_testing import ScriptedControl, scripted_app

SECRET = "not-to-be-seen-anywhere"


@pytest.mark.slow
def test_the_triggerer_reads_the_connection(airflow: AirflowServer, tmp_path: Path) -> None:
    """The triggerer waits for jobs of the cluster, and cancels one whose task is marked.

    Nothing shows the secret.
    """
    where = ScriptedControl(tmp_path / "elsewhere")
    extra = {"kind": "scripted", "scripted_dir": str(where.folder.root), "token": SECRET}
    connection = {
        "connection_id": "cluster_one",
        "conn_type": "transload",
        "extra": json.dumps(extra),
    }
    airflow.call("POST", "/api/v2/connections", connection)
    conf = {"connection": "cluster_one", "app": json.loads(scripted_app("a", held()).to_json())}
    waited, marked = (airflow.trigger("clustered", conf) for _ in range(2))
    for run in (waited, marked):
        run.wait("deferred")
    handle = waited.xcom("handle")
    assert handle.startswith("cluster_one://airflow/")
    gone = marked.xcom("handle").rpartition("/")[2]
    # Airflow runs no trigger, and so no `on_kill`, of a task that is marked before the triggerer
    # has taken it up
    airflow.until(
        lambda: len({each["pid"] for each in where.calls("log_read", gone)}) > 1,
        "the triggerer watches it",
    )
    marked.mark("failed")
    airflow.until(lambda: where.calls("cancel", gone), "the app of the marked task is cancelled")
    where.open("go", handle.rpartition("/")[2])
    waited.wait("success")
    assert waited.xcom()["handle"] == handle
    log = waited.log()
    assert "cannot wait" not in log
    shown = json.dumps([waited.task(), marked.task(), waited.xcom(), log, marked.log()])
    logs = [path for path in airflow.home.rglob("*") if path.suffix == ".log"]
    assert logs
    assert SECRET not in shown + "".join(path.read_text(errors="replace") for path in logs)


def test_button_test(airflow: AirflowServer, tmp_path: Path) -> None:
    """The button *Test* of the form, as the interface calls it."""
    body = {"connection_id": "x", "conn_type": "transload", "extra": json.dumps({"kind": "local"})}
    answer = airflow.call("POST", "/api/v2/connections/test", body)
    assert (answer["status"], "local" in answer["message"]) == (True, True), answer
    wrong = {**body, "extra": json.dumps({"kind": "lokal"})}
    answer = airflow.call("POST", "/api/v2/connections/test", wrong)
    assert (answer["status"], "lokal" in answer["message"]) == (False, True), answer
