"""A chain of two jobs: the first decides how many replicas the second has; the tracker knows what
came from what.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param

from transload_airflow import TransloadOperator

JOBS = f"{Path(__file__).resolve().parent}/jobs.py"
PARAMS = {
    "folder": Param("/tmp/transload-chain", type="string"),
    "rows": Param(3000, type="integer"),
}

with DAG(
    "chain",
    schedule=None,
    start_date=dt.datetime(2024, 1, 1),
    catchup=False,
    params=PARAMS,
    doc_md=__doc__,
) as chain:
    plan = TransloadOperator(
        task_id="plan",
        component=f"{JOBS}:plan",
        component_args={"folder": "{{ params.folder }}", "rows": "{{ params.rows }}"},
        deferrable=True,
        push_results=True,
    )
    count = TransloadOperator(
        task_id="count",
        component=f"{JOBS}:count",
        component_args=plan.output[
            "results.plan"
        ],  # {"numbers": …, "replicas": …}: a launch parameter from upstream
        parent_run_id=plan.output["handle"],
        deferrable=True,
    )
    draw = BashOperator(
        task_id="draw",
        bash_command=f"{sys.executable} -m transload report --lineage $HANDLE -o $FOLDER/lineage.svg",
        env={"HANDLE": count.output["handle"], "FOLDER": "{{ params.folder }}"},
        append_env=True,
    )
    count >> draw
