"""What `transload_prefect.run_app` and its like take, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from transload.pipelines import ExecutionSettings, JobSettings, OverrideOptions

if TYPE_CHECKING:
    from pathlib import Path

    from prefect.assets import Asset
    from prefect.cache_policies import CachePolicy
    from prefect.client.schemas.objects import State
    from prefect.context import TaskRunContext
    from prefect.filesystems import WritableFileSystem
    from prefect.results import ResultSerializer
    from prefect.tasks import StateHookCallable
    from prefect.transactions import Transaction
    from prefect.utilities.annotations import NotSet

    from transload.specs import CfgVal, Environment, Workspace
    from transload_prefect.cluster import TransloadCluster


class PrefectOptions(TypedDict, total=False):
    """The arguments of ``prefect.Task`` (3.8) beside its function and its name, described there."""

    asset_deps: list[str | Asset] | None
    cache_expiration: timedelta | None
    cache_key_fn: Callable[[TaskRunContext, dict[str, Any]], str | None] | None
    cache_policy: CachePolicy | type[NotSet]
    cache_result_in_memory: bool
    description: str | None
    log_prints: bool | None
    on_commit: list[Callable[[Transaction], None]] | None
    on_completion: list[StateHookCallable] | None
    on_failure: list[StateHookCallable] | None
    on_rollback: list[Callable[[Transaction], None]] | None
    on_running: list[StateHookCallable] | None
    persist_result: bool | None
    refresh_cache: bool | None
    result_serializer: ResultSerializer | str | None
    result_storage: WritableFileSystem | Path | str | None
    result_storage_key: str | None
    retries: int | None
    retry_condition_fn: Callable[[Any, Any, State[Any]], Any] | None
    retry_delay_seconds: float | list[float] | Callable[[int], list[float]] | None
    retry_jitter_factor: float | None
    tags: Iterable[str] | None
    task_run_name: str | Callable[..., str] | None
    timeout_seconds: float | None
    version: str | None
    viz_return_value: Any


class AdapterOptions(TypedDict, total=False):
    """The settings of a job besides its launch (see `transload_prefect.settings.AppSpec`)."""

    artifacts: bool
    assets: bool | list[str]
    cluster: TransloadCluster | str | None
    events: bool
    inherit_env: bool
    key: str | None
    stderr_level: str | None


class LaunchOptions(TypedDict, total=False):
    """The arguments of `transload.pipelines.Launch` that are taken by their own names.

    The arguments of a component are ``component_args`` here. ``checkpoints`` is that of
    `transload.pipelines.ExecutionOptions`: the handle of an ended job goes into ``launch``.
    """

    cfg: Mapping[str, CfgVal]
    command_name: str | None
    component_args: Mapping[str, Any] | Sequence[str]
    environment: Environment | str | None
    folder: str | None
    overrides: OverrideOptions | None
    parent_run_id: str | None
    pass_env: Sequence[str]
    scheduler: str | None
    workspace: str | Workspace | None


class JobOptions(LaunchOptions, JobSettings, ExecutionSettings, AdapterOptions, total=False):
    """The settings of a job."""


class AppOptions(JobOptions, total=False):
    """The settings of `transload_prefect.run_app`."""

    name: str | None
    tracker_base: str | None


class TrialOptions(JobOptions, PrefectOptions, total=False):
    """The settings of the tasks that run the trials of a search."""


class TaskOptions(AppOptions, PrefectOptions, total=False):
    """The settings of `transload_prefect.app_task`."""

    asynchronous: bool
