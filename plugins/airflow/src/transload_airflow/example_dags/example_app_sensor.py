"""Wait for a job that something else has started. Give its handle when you trigger this DAG."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from transload_airflow import AppSensor, TransloadOperator

with DAG(
    "example_app_sensor",
    schedule=None,
    doc_md=__doc__,
    tags=["example"],
    params={"handle": Param(type="string", description="As `transload list` shows it.")},
):
    wait = AppSensor(
        task_id="wait",
        handle="{{ params.handle }}",
        deferrable=True,
        timeout=3600,  # seconds
    )
    after = TransloadOperator(
        task_id="after",
        component="utils.echo",
        component_args={"msg": "{{ params.handle }} has ended"},
        scheduler="local",
    )
    wait >> after
