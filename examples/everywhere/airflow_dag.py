"""The job as an Airflow task: one task, two replicas, no worker slot held while it trains."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

from airflow.sdk import DAG

sys.path.insert(0, str(Path(__file__).parent))

from job import ARGUMENTS, COMPONENT

from transload_airflow import TransloadOperator

with DAG(
    "everywhere", schedule=None, start_date=dt.datetime(2024, 1, 1), catchup=False, doc_md=__doc__
):
    TransloadOperator(
        task_id="digits", component=COMPONENT, component_args=ARGUMENTS, deferrable=True
    )
