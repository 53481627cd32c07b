"""Make an operator of a job definition. This is pure, and nothing runs."""

from __future__ import annotations

import re
from typing import Any, Unpack

from transload_airflow.operators import TransloadOperator
from transload_airflow.options import OperatorOptions
from transload_airflow.sources import LAUNCH_FIELDS, launch_of

_NOT_IN_A_TASK_ID = re.compile(r"[^A-Za-z0-9_.-]+")


def operator_from_app(source: Any, **options: Unpack[OperatorOptions]) -> TransloadOperator:
    """Return the operator that runs a job, from any kind of source.

    Args:
        source: an AppDef, its JSON, a component (name or function), or a
            ``transload.pipelines.Launch``.
        options: of `TransloadOperator`. The default of ``task_id`` is made from the name of the job
            or component.

    Raises:
        UnsupportedFeature: for a Search, which becomes a group of tasks (`search_group`), not an
            operator.
        SpecError: if the source is none of these.
        ConfigError: for a wrong option.
    """
    launch, other_options = launch_of(source, options)
    task_id = other_options.pop("task_id", None) or _task_id(launch.name)
    given = {name: getattr(launch, field) for name, field in LAUNCH_FIELDS.items()}
    return TransloadOperator(
        task_id=task_id,
        app=launch.app,
        component=launch.component,
        command=launch.command,
        overrides=launch.overrides,
        **given,
        **other_options,
    )


def _task_id(name: str) -> str:
    """Return a task's name, made from that of a job or component."""
    readable = _NOT_IN_A_TASK_ID.sub("_", name.rsplit(":", 1)[-1])
    return readable.strip("._-") or "app"
