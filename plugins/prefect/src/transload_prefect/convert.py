"""What a task would submit, as text for a person. Nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transload.pipelines import dry_run
from transload_prefect.adapter import HOST, on_cluster, runner_of
from transload_prefect.cluster import cluster_named

if TYPE_CHECKING:
    from transload_prefect.task import AppTask


def dry_run_task(task: AppTask, context_args: Mapping[str, Any]) -> str:
    """Return what a task would submit, below its name and what Prefect makes of it.

    Args:
        task: the task.
        context_args: arguments that its component may declare.

    Raises:
        SpecError: if the app definition is wrong, or the scheduler cannot express it.
        ConfigError: for an unknown cluster, scheduler or option.
    """
    spec = task.spec
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
