"""The script as a task of a DAG. Where it goes is what its header, the task or the settings say."""

from __future__ import annotations

import datetime as dt

from airflow.sdk import DAG

from transload_airflow import TransloadOperator

with DAG("fit", schedule=None, start_date=dt.datetime(2024, 1, 1), catchup=False, doc_md=__doc__):
    TransloadOperator(task_id="fit", command=["python", "fit.py", "--degree", "5"])
