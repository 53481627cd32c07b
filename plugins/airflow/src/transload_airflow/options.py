"""The options of an operator, for the signatures of what makes one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar

from transload.pipelines import ExecutionOptions, ExecutionSettings, JobSettings

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.sdk import DAG, TaskGroup

    from transload.components import Component
    from transload.pipelines import OverrideOptions
    from transload.specs import AppDef, CfgVal, Environment, Workspace
    from transload_airflow.callbacks import AppCallbacks

F = TypeVar("F", bound=Callable[..., Any])


class BaseOptions(TypedDict, total=False):
    """The arguments of Airflow's ``BaseOperator`` (3.3), described there."""

    allow_nested_operators: bool
    default_args: Mapping[str, Any] | None
    dag: DAG | None
    depends_on_past: bool
    do_xcom_push: bool
    doc: str | None
    doc_json: str | None
    doc_md: str | None
    doc_rst: str | None
    doc_yaml: str | None
    email: str | Sequence[str] | None
    email_on_failure: bool
    email_on_retry: bool
    end_date: datetime | None
    execution_timeout: timedelta | None
    executor: str | None
    executor_config: dict[str, Any] | None
    ignore_first_depends_on_past: bool
    inlets: Any
    logger_name: str | None
    map_index_template: str | None
    max_active_tis_per_dag: int | None
    max_active_tis_per_dagrun: int | None
    max_retry_delay: timedelta | float | None
    multiple_outputs: bool
    on_execute_callback: Any
    on_failure_callback: Any
    on_retry_callback: Any
    on_skipped_callback: Any
    on_success_callback: Any
    outlets: Any
    owner: str
    params: MutableMapping[str, Any] | None
    pool: str | None
    pool_slots: int
    post_execute: Any
    pre_execute: Any
    priority_weight: int
    queue: str
    render_template_as_native_obj: bool | None
    resources: dict[str, Any] | None
    retries: int | None
    retry_delay: timedelta | float
    retry_exponential_backoff: float
    retry_policy: Any
    run_as_user: str | None
    sla: timedelta | None
    start_date: datetime | None
    task_display_name: str | None
    task_group: TaskGroup | None
    task_id: str
    trigger_rule: str
    wait_for_downstream: bool
    wait_for_past_depends_before_skipping: bool
    weight_rule: Any


class JobOptions(JobSettings, ExecutionSettings, BaseOptions, total=False):
    """The arguments of `TransloadOperator` beside what is to run where.

    `TransloadOperator` describes them.
    """

    callbacks: AppCallbacks | None
    cancelled: Literal["fail", "skip"]
    defer_after: float
    deferrable: bool | None
    environment: Environment | str | None
    inherit_env: bool
    key: str | None
    overrides: OverrideOptions | None
    parent_run_id: str | None
    pass_env: Sequence[str]
    push_results: bool
    skip_on_exit_code: int | Collection[int] | None
    template_app: bool
    workspace: str | Workspace | None


class OperatorOptions(JobOptions, total=False):
    """The arguments of `TransloadOperator`, as it describes them."""

    app: AppDef | str | Mapping[str, Any] | Callable[..., AppDef] | None
    cfg: Mapping[str, CfgVal] | None
    command: Sequence[str] | None
    component: str | Component | Callable[..., AppDef] | None
    component_args: Mapping[str, Any] | Sequence[str] | None
    conn_id: str | None
    scheduler: str | None
    tracker_base: str | None


ARGUMENTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(
        name for name in OperatorOptions.__annotations__ if name not in BaseOptions.__annotations__
    ),
    **{each.name: each.default for each in fields(ExecutionOptions)},
    "cancelled": "fail",
    "defer_after": 2.0,
    "inherit_env": False,
    "pass_env": (),
    "push_results": False,
    "template_app": True,
}
"""The arguments of `TransloadOperator` that Airflow's own operators do not have, and their defaults."""


def taking_arguments(init: F) -> F:
    """Show `ARGUMENTS` in the signature of an ``__init__``.

    Airflow reads it, to find what ``default_args`` may set, and what a mapped task may be given.
    """
    this, options = signature(init).parameters.values()
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default)
        for name, default in ARGUMENTS.items()
    ]
    shown: Any = init
    shown.__signature__ = Signature([this, *named, options])
    return init


class SearchOptions(BaseOptions, total=False):
    """The arguments of a task of a search."""

    conn_id: str | None
    place: str
    search: Mapping[str, Any]
    tracker_base: str | None


class TrialOptions(JobOptions, total=False):
    """The arguments of a trial beside what it runs."""

    conn_id: str | None
    tracker_base: str | None
