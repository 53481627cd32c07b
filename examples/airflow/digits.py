"""Train at three learning rates side by side, pick the best, train it again with more replicas.

Make the folder of this file, with ``examples/digits`` next to it, Airflow's DAGs folder. Each
training is one task, however many replicas it has, and no task holds a worker slot while it waits.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from transload_airflow import TransloadOperator

DIGITS = f"{Path(__file__).resolve().parents[1]}/digits/component.py:digits"
LEARNING_RATES = [0.01, 0.1, 0.5]

with DAG(
    "digits", schedule=None, start_date=dt.datetime(2024, 1, 1), catchup=False, doc_md=__doc__
) as digits:
    train = TransloadOperator.partial(task_id="train", component=DIGITS, deferrable=True).expand(
        component_args=[{"lr": lr, "replicas": 2, "epochs": 5} for lr in LEARNING_RATES]
    )

    @task
    def pick(runs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the launch parameters of the last training: the best learning rate, more
        replicas.
        """
        accuracy = [run["results"]["final"]["accuracy"] for run in runs]
        best = accuracy.index(max(accuracy))
        print(f"accuracies {accuracy}: learning rate {LEARNING_RATES[best]} is the best")
        return {"lr": LEARNING_RATES[best], "replicas": 3, "epochs": 15}

    TransloadOperator(
        task_id="retrain", component=DIGITS, component_args=pick(train.output), deferrable=True
    )
