"""Run a component, many jobs at once, and a command by the operator.

Jobs run on the machine of the worker. With ``scheduler`` they run on a cluster instead.
"""

from __future__ import annotations

from airflow.sdk import DAG

from transload_airflow import TransloadOperator

with DAG("example_transload_operator", schedule=None, doc_md=__doc__, tags=["example"]):
    prepare = TransloadOperator(
        task_id="prepare",
        component="utils.echo",
        component_args={"msg": "three shares"},
        scheduler="local",
    )
    # one task instance for each learning rate, side by side
    train = TransloadOperator.partial(
        task_id="train",
        component="utils.echo",
        scheduler="local",
        deferrable=True,
        retries=1,
    ).expand(component_args=[{"msg": "lr 0.1"}, {"msg": "lr 0.5"}])
    report = TransloadOperator(
        task_id="report",
        command=["echo", "the job before this one was {{ ti.xcom_pull('prepare', key='handle') }}"],
        scheduler="local",
    )
    prepare >> train >> report
