"""What OpenLineage's own listener and extractor emit for our tasks, on a real Airflow, written to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow_server import AirflowServer

pytestmark = pytest.mark.timeout(280)
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
    """Artifacts are outputs, sources inputs, results a facet; of tasks in place and deferred, good and bad."""
    folder = Path(json.loads(airflow.environment["AIRFLOW__OPENLINEAGE__TRANSPORT"])["log_file_path"]).parent
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
            if word == "good":
                assert [(each["namespace"], each["name"]) for each in event["outputs"]] == [("file", "/models/1.pt")]
                assert facet["state"] == "SUCCEEDED"
                assert facet["results"] == {"final": {"accuracy": 0.5}}
            else:
                assert facet["state"] == "FAILED"
