"""The job as a Prefect task, in a flow of nothing else."""

from __future__ import annotations

from job import ARGUMENTS, COMPONENT
from prefect import flow

from transload.runner import AppResults
from transload_prefect import app_task

digits = app_task(COMPONENT, name="digits")


@flow(name="everywhere")
def everywhere() -> AppResults:
    """Train, and return what the job reported."""
    return digits(**ARGUMENTS)


if __name__ == "__main__":
    print(everywhere().value("accuracy", "final"))
