"""One DAG for Airflow 2: both ways to wait, a failure, a skip, mapping, the decorator, a sensor, a search."""

from __future__ import annotations

import datetime as dt
import os

from airflow.decorators import task
from airflow.models.dag import DAG

from transload_airflow import AppSensor, TransloadOperator, search_group
from transload_search import Objective, Parameter, Search
from transload_testing import scripted_app

QUICK = {"scheduler": "scripted", "poll_interval": 0.5, "logging_interval": 0.3, "defer_after": 0}
LINES = [{"text": "said in the app"}]


def app_of(*steps, **more):
    """Return a scripted app that runs for a second, then does what is told."""
    return scripted_app("app", {"steps": [{"state": "RUNNING", "seconds": 1.0, "lines": LINES}, *steps], **more})


with DAG("two", schedule=None, start_date=dt.datetime(2024, 1, 1)) as two:
    for mode, deferrable in (("sync", False), ("deferrable", True)):
        good = TransloadOperator(
            task_id=f"{mode}_good",
            app=app_of("SUCCEEDED", results={"0": {"mode": mode}}),
            deferrable=deferrable,
            push_results=True,
            **QUICK,
        )
        TransloadOperator(
            task_id=f"{mode}_skipped",
            app=app_of("FAILED", exit_code=99),
            skip_on_exit_code=99,
            deferrable=deferrable,
            **QUICK,
        )
        TransloadOperator(task_id=f"{mode}_bad", app=app_of("FAILED", exit_code=3), deferrable=deferrable, **QUICK)
        seen = AppSensor(
            task_id=f"{mode}_sensor",
            handle=f"{{{{ ti.xcom_pull(task_ids='{mode}_good', key='handle') }}}}",
            deferrable=deferrable,
            poke_interval=0.5,
        )
        good >> seen
    TransloadOperator.partial(task_id="mapped", component="utils.echo", deferrable=True).expand(
        component_args=[{"msg": "{{ dag.dag_id }} a"}, {"msg": "b"}]
    )

    @task.transload(component="utils.echo")
    def decorated():
        """Return the arguments of the component."""
        return {"msg": f"decorated in {os.path.basename(__file__)}"}

    decorated()

    search_group(
        Search(
            "utils.booth",
            [Parameter("x1", "float", -10, 10)],
            Objective("booth_eval"),
            trials=3,
            parallelism=2,
            constants={"x2": 1.0},
        ),
        deferrable=True,
        defer_after=0,
    )
