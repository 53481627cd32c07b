"""What a DAG author's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from transload.specs import AppDef
from transload_airflow import AppSensor, TransloadOperator


def component() -> AppDef:
    """Return nothing of interest."""
    raise NotImplementedError


operator: TransloadOperator = TransloadOperator(
    task_id="train", component=component, deferrable=True, patience=60.0
)
sensor: AppSensor = AppSensor(task_id="wait", handle="local://session/app")
