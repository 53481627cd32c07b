"""Let a function say what to run. It returns a job, or the arguments of a component."""

from __future__ import annotations

from airflow.sdk import DAG, task

from transload.specs import AppDef, Role

with DAG("example_transload_decorator", schedule=None, doc_md=__doc__, tags=["example"]):

    @task
    def choose() -> int:
        """Return how many replicas the training gets."""
        return 2

    @task.transload(scheduler="local", deferrable=True)
    def train(replicas: int) -> AppDef:
        """Return the job, whose replicas are what the task before it has chosen."""
        trainer = Role(
            name="trainer",
            image="",
            entrypoint="echo",
            args=["this is replica ${replica_id}"],
            num_replicas=replicas,
        )
        return AppDef(name="train", roles=[trainer])

    @task.transload(component="utils.echo", scheduler="local")
    def announce() -> dict[str, str]:
        """Return the arguments of the component."""
        return {"msg": "trained"}

    train(choose()) >> announce()
