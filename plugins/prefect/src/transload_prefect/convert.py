"""What a task would submit, as text for a person. Nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transload.pipelines import dry_run
from transload_prefect.cluster import cluster_named
from transload_prefect.states import HOST
from transload_prefect.step import on_cluster, runner_of

if TYPE_CHECKING:
    from prefect import Task


def dry_run_task(task: Task[..., Any], context_args: Mapping[str, Any]) -> str:
    """Return what a task would submit, below its name and what Prefect makes of it.

    Args:
        task: of `transload_prefect.app_task`.
        context_args: arguments that its component may declare.

    Raises:
        SpecError: if the app definition is wrong, or the scheduler cannot express it.
        ConfigError: for an unknown cluster, scheduler or option.
    """
    made: Any = task
    spec = made.spec
    cluster = None
    if spec.cluster is not None:
        cluster = cluster_named(spec.cluster)
    request = dry_run(
        HOST,
        on_cluster(spec.launch, cluster),
        spec.options,
        context_args=context_args,
        runner=runner_of(cluster, spec.inherit_env),
    )
    how = f"retries: {task.retries}, tags: {sorted(task.tags)}"
    return f"Prefect task {task.name!r} ({how})\n{request}"
