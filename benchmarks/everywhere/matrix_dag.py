"""A task for each engine, which a connection leads to, all at once; none holds a worker slot while
it trains.

Two more for each engine: one that is to be cancelled, and one that fails and is tried again.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from pathlib import Path

from airflow.sdk import DAG

sys.path.insert(0, str(Path(__file__).parent))

from job import ARGUMENTS, COMPONENT

from transload_airflow import TransloadOperator

SHORT = Path(__file__).with_name("short.py")

with DAG("matrix", schedule=None, start_date=dt.datetime(2024, 1, 1), catchup=False):
    for engine in os.environ["EVERYWHERE_ENGINES"].split():
        TransloadOperator(
            task_id=engine,
            component=COMPONENT,
            component_args=ARGUMENTS,
            conn_id=f"the_{engine}",
            deferrable=True,
        )
        there = {"conn_id": f"the_{engine}", "deferrable": True, "defer_after": 0}
        TransloadOperator(task_id=f"endless_{engine}", component=f"{SHORT}:endless", **there)
        again = {"retries": 1, "retry_delay": dt.timedelta(seconds=1)}
        TransloadOperator(
            task_id=f"failing_{engine}", component=f"{SHORT}:failing", **there, **again
        )
