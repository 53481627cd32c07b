"""Search for a good learning rate, then train with the best one: each trial is a mapped task of its
own.

Rounds are suggested by Ax where transload-ax is installed, at random elsewhere. All state of the
search is in its tracker base, so any task of it may be retried or cleared.
"""

from __future__ import annotations

import datetime as dt
from importlib.util import find_spec
from pathlib import Path

from airflow.sdk import DAG

from transload_airflow import TransloadOperator, search_group
from transload_search import Objective, Parameter, Search

DIGITS = f"{Path(__file__).resolve().parents[1]}/digits/component.py:digits"
SEARCH = Search(
    DIGITS,
    [Parameter("lr", "float", 0.005, 1.0, log=True), Parameter("hidden", "int", 8, 64)],
    Objective("accuracy", minimize=False),
    trials=4,
    parallelism=2,
    suggester="ax" if find_spec("transload_ax") else "random",
    constants={"replicas": 2, "epochs": 5},
)

with DAG(
    "search", schedule=None, start_date=dt.datetime(2024, 1, 1), catchup=False, doc_md=__doc__
) as dag:
    tune = search_group(SEARCH, group_id="tune", deferrable=True, retries=1)
    best = "ti.xcom_pull(task_ids='tune.best', key='best')"
    train = TransloadOperator(
        task_id="train",
        component=DIGITS,
        component_args={
            "lr": f"{{{{ {best}['parameters']['lr'] }}}}",
            "hidden": f"{{{{ {best}['parameters']['hidden'] }}}}",
            "replicas": 3,
            "epochs": 15,
        },
        parent_run_id=f"{{{{ {best}['handle'] }}}}",
        deferrable=True,
    )
    tune >> train
