"""From an app to an operator. Pure: nothing runs, and Airflow is imported only when an operator is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transload.errors import UnsupportedFeature
from transload.pipelines import AdapterCapabilities, Execution, Identity, Launch, Search
from transload_airflow.states import STATES

if TYPE_CHECKING:
    from transload_airflow.operators import TransloadOperator

_LAUNCH_OPTIONS = ("args", "scheduler", "cfg", "workspace", "parent_run_id", "tracker_base")


def operator_from_app(source: Any, *, task_id: str | None = None, **options: Any) -> TransloadOperator:
    """Return the operator that runs an app: what `TransloadOperator` makes, from any kind of source.

    Args:
        source: an AppDef, its JSON, a component (name or function), or a ``transload.pipelines.Launch``.
        task_id: default: made from the name of the app or component.
        options: of `TransloadOperator`; ``args`` stands for ``component_args``.

    Raises:
        UnsupportedFeature: for a Search: it becomes a group of tasks, not an operator.
        SpecError: if the source is none of these.
        ConfigError: for a wrong option.
    """
    from transload_airflow.operators import TransloadOperator

    launch, rest = _split(source, options)
    return TransloadOperator(
        task_id=task_id or _task_id(launch.name),
        app=launch.app,
        component=launch.component,
        component_args=launch.args or None,
        scheduler=launch.scheduler,
        cfg=launch.cfg or None,
        workspace=launch.workspace,
        parent_run_id=launch.parent_run_id,
        tracker_base=launch.tracker_base,
        **rest,
    )


def _split(source: Any, options: dict[str, Any]) -> tuple[Launch, dict[str, Any]]:
    if isinstance(source, Search):
        # the seam for advanced stages: a Search becomes a TaskGroup, each trial a task of its own
        raise UnsupportedFeature(
            "source: a Search needs a group of tasks; this version makes single operators", "source"
        )
    options = dict(options)
    if "component_args" in options:
        options["args"] = options.pop("component_args")
    given = {name: options.pop(name) for name in _LAUNCH_OPTIONS if options.get(name) is not None}
    return Launch.of(source, **given), {name: value for name, value in options.items() if name not in _LAUNCH_OPTIONS}


def _task_id(name: str) -> str:
    import re

    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name.rsplit(":", 1)[-1]).strip("._-") or "app"


class AirflowAdapter:
    """The adapter that ``transload.pipelines.get_adapter("airflow")`` returns."""

    name = "airflow"
    state_map = STATES
    capabilities = AdapterCapabilities(
        deferred=True,
        notes={
            "deferred": "apps of the local scheduler only where the triggerer is on the worker's machine",
            "cancel": "marking or clearing a deferred task cancels the app at once from Airflow 3.3 on",
            "reattach": "by the task state store from Airflow 3.3 on; before, by [transload] deployment_id",
            "searches": "not yet",
        },
    )

    def convert(self, source: Any, **host_options: Any) -> TransloadOperator:
        """Return an operator; see `operator_from_app`."""
        return operator_from_app(source, **host_options)

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return what a task would submit; no Airflow is needed for that."""
        from transload_airflow.run import HOST, runner_for_tasks

        launch, _ = _split(source, host_options)
        return Execution(runner_for_tasks(), launch, Identity(HOST, "dry-run", (launch.name,))).dry_run()
