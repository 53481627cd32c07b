"""Airflow 2.11: what the shared compatibility package carries, by ``dag.test()``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def tasks(airflow_2: dict[str, str]) -> dict[str, Any]:
    """What became of the tasks of the one DAG, and the log of all."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "run_dag.py"), str(HERE / "dags")],
        env=airflow_2,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    return {**json.loads(done.stdout.splitlines()[-1]), "log": done.stdout + done.stderr}


@pytest.mark.parametrize("mode", ["sync", "deferrable"])
def test_modes(tasks: dict[str, Any], mode: str) -> None:
    """Success with results, failure with the last words, skip by exit code, a sensor; in place and deferred."""
    good = tasks[f"{mode}_good"]
    assert good["state"] == "success"
    assert good["xcom"]["return_value"]["results"] == {"0": {"mode": mode}}
    assert good["xcom"]["results.0"] == {"mode": mode}
    assert good["xcom"]["handle"] == good["xcom"]["return_value"]["handle"]
    assert tasks[f"{mode}_skipped"]["state"] == "skipped"
    assert tasks[f"{mode}_bad"]["state"] == "failed"
    assert tasks[f"{mode}_sensor"]["xcom"]["return_value"]["results"] == {"0": {"mode": mode}}


def test_what_the_log_says(tasks: dict[str, Any]) -> None:
    """The lines of replicas are in the log, and failures name replica, exit code and last lines."""
    assert "main/0 said in the app" in tasks["log"]
    assert "FAILED: main/0 exit code 3" in tasks["log"]
    assert "deployment_id is not set" in tasks["log"], "without a task state store, a person is told what to set"
    assert "DEFERRED" in tasks["log"] or "deferr" in tasks["log"].lower()


def test_mapping_and_decorator(tasks: dict[str, Any]) -> None:
    """Dynamic mapping and ``@task.transload`` run too."""
    assert [tasks[f"mapped[{k}]"]["state"] for k in (0, 1)] == ["success", "success"]
    assert tasks["decorated"]["state"] == "success"
    assert "main/0 decorated in two.py" in tasks["log"] or "/0 decorated in two.py" in tasks["log"]


def test_search(tasks: dict[str, Any]) -> None:
    """A search is a group of mapped trials there too; its last task tells the best."""
    assert [tasks[name]["state"] for name in ("search.trials_0[0]", "search.trials_0[1]", "search.trials_1[0]")] == [
        "success"
    ] * 3
    found = tasks["search.best"]["xcom"]
    values = [row["value"] for row in found["return_value"]["trials"]]
    assert found["best"]["value"] == min(values)


def test_names_that_airflow_looks_up(airflow_2: dict[str, str]) -> None:
    """Hook, link and decorator are found by the names in the provider's metadata."""
    code = (
        "import json; from airflow.providers_manager import ProvidersManager; from airflow.decorators import task;"
        "manager = ProvidersManager();"
        "print(json.dumps([manager.hooks['transload'].hook_class_name,"
        "'transload_airflow.links.AppLink' in manager.extra_links_class_names, callable(task.transload)]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=airflow_2, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["transload_airflow.hooks.TransloadHook", True, True]
