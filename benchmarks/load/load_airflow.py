"""One DAG with a task for each unit, mapped; all wait in one triggerer."""

from __future__ import annotations

import fcntl
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "airflow"))

from airflow_server import AirflowServer
from warm import AIRFLOW_TASKS, IMPORTED

DAG = """
import datetime as dt
from airflow.sdk import DAG, task
from transload_airflow import TransloadOperator

with DAG("load", schedule=None, start_date=dt.datetime(2024, 1, 1), max_active_tasks=2000):
    @task
    def numbers(dag_run=None):
        return [{{"number": float(k), "gate": dag_run.conf["gate"]}} for k in range(dag_run.conf["units"])]

    options = {{"component": "{units}:unit", "scheduler": "{engine}", "deferrable": True, "defer_after": 0}}
    TransloadOperator.partial(task_id="job", **options).expand(component_args=numbers())
"""


class Host:
    """Airflow, with a triggerer for 1,000 triggers."""

    def __init__(self, folder: Path, engine: str) -> None:
        self._gate = folder / "gate"
        (dags := folder / "dags").mkdir()
        (dags / "load.py").write_text(
            DAG.format(units=Path(__file__).with_name("units.py"), engine=engine)
        )
        more = {"AIRFLOW__CORE__MAX_MAP_LENGTH": "2000"}
        modules = [*AIRFLOW_TASKS, *IMPORTED[engine]]
        self._server = AirflowServer(folder / "airflow", dags, more, modules)
        shutil.rmtree(dags)

    def start(self) -> None:
        """Start it."""
        self._server.start()

    def many(self, number: int, units: int) -> int:
        """Run so many; return how many ended well, each with its own result.

        Their tasks begin one after the other, for minutes; none of the jobs goes on before all are
        deferred.
        """
        with open(self._gate, "w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            run = self._server.trigger("load", {"units": units, "gate": str(self._gate)})
            path = f"/api/v2/dags/load/dagRuns/{run.run_id}"
            waiting = f"{path}/taskInstances/job/listMapped?state=deferred&state=failed&state=success&limit=1"
            self._server.until(
                lambda: (
                    self._server.call("GET", waiting)["total_entries"] >= units
                    or self._server.call("GET", path)["state"] == "failed"
                ),
                "all are deferred",
                3600,
            )
        self._server.until(
            lambda: self._server.call("GET", path)["state"] in ("success", "failed"),
            "the run has ended",
            3600,
        )
        right = 0
        for k in range(units):
            found = run.xcom(index=k)
            right += bool(found) and found["results"]["0"]["number"] == k
        return right

    def stop(self) -> None:
        """End it."""
        self._server.stop()
