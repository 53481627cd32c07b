"""One DAG for each tool: the same job, started as that tool's manual says; the host tries three
times more.
"""

from __future__ import annotations

import datetime as dt
import os

from airflow.sdk import DAG

RETRIES = {"retries": 3, "retry_delay": dt.timedelta(seconds=1)}
COMMAND = "{{ dag_run.conf['command'] }}"
RESULTS = {"TRANSLOAD_TRACKER_BASE": "{{ dag_run.conf['results'] }}"}


def transload(*, deferrable=True, **options):
    """Ours."""
    from transload_airflow import TransloadOperator

    scheduler = "{{ dag_run.conf['scheduler'] }}"
    return TransloadOperator(
        app=lambda dag_run: dag_run.conf["app"],
        scheduler=scheduler,
        deferrable=deferrable,
        **options,
    )


def transload_sync(**options):
    """Ours, waiting in the worker."""
    return transload(deferrable=False, **options)


def bash(**options):
    """BashOperator: the job is a child of the task; its last line is the result."""
    from airflow.providers.standard.operators.bash import BashOperator

    command = COMMAND + " && cat $TRANSLOAD_TRACKER_BASE/0.json"
    return BashOperator(bash_command=command, env=RESULTS, append_env=True, **options)


def pod(**options):
    """KubernetesPodOperator: `reattach_on_restart` (its default) finds the pod of the try before by
    labels.
    """
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from kubernetes.client import models as k8s

    folders = {"tests": os.environ["ONCE_TESTS"], "ledger": os.environ["ONCE_LEDGER"]}
    volumes = [
        k8s.V1Volume(name=name, host_path=k8s.V1HostPathVolumeSource(path=path))
        for name, path in folders.items()
    ]
    mounts = [k8s.V1VolumeMount(name=name, mount_path=path) for name, path in folders.items()]
    command = (
        "python3 "
        + COMMAND.replace("'command'", "'pod'")
        + " && mv /airflow/xcom/0.json /airflow/xcom/return.json"
    )
    return KubernetesPodOperator(
        name="job",
        namespace=os.environ["ONCE_NAMESPACE"],
        image="transload-test:1",
        cmds=["sh", "-c"],
        arguments=[command],
        env_vars={"TRANSLOAD_TRACKER_BASE": "/airflow/xcom"},
        volumes=volumes,
        volume_mounts=mounts,
        do_xcom_push=True,
        in_cluster=False,
        **options,
    )


def pod_deferrable(**options):
    """The same, waiting in the triggerer, lines fetched every ten seconds."""
    return pod(deferrable=True, logging_interval=10, **options)


def resumable(**options):
    """An operator of one's own on Airflow's ResumableJobMixin: `airflow_slurm.py`."""
    from airflow_slurm import SlurmJobOperator

    return SlurmJobOperator(command=COMMAND, results=RESULTS["TRANSLOAD_TRACKER_BASE"], **options)


for _tool in os.environ["ONCE_TOOLS"].split():
    _name, _, _defaults = _tool.partition("_defaults")
    with DAG(_tool, schedule=None, start_date=dt.datetime(2024, 1, 1), max_active_runs=600) as _dag:
        globals()[_name](task_id="job", **({} if _tool.endswith("_defaults") else RETRIES))
    globals()[f"dag_{_tool}"] = _dag
