"""From an app to an operator. Pure: nothing runs, and Airflow is imported only when an operator is
made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from transload.errors import UnsupportedFeature
from transload.pipelines import AdapterCapabilities, Launch, dry_run
from transload_airflow.states import STATES

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskGroup

    from transload_airflow.operators import TransloadOperator
    from transload_search import Search

_LAUNCH_OPTIONS = (
    "component_args",
    "scheduler",
    "cfg",
    "workspace",
    "parent_run_id",
    "tracker_base",
)


def operator_from_app(
    source: Any, *, task_id: str | None = None, **options: Any
) -> TransloadOperator:
    """Return the operator that runs an app, from any kind of source: what `TransloadOperator`
    makes.

    Args:
        source: an AppDef, its JSON, a component (name or function), or a
            ``transload.pipelines.Launch``.
        task_id: default: made from the name of the app or component.
        options: of `TransloadOperator`.

    Raises:
        UnsupportedFeature: for a Search: it becomes a group of tasks (`search_group`), not an
            operator.
        SpecError: if the source is none of these.
        ConfigError: for a wrong option.
    """
    from transload_airflow.operators import TransloadOperator

    launch, rest = _split(source, options)
    names = ("component", *_LAUNCH_OPTIONS[1:])
    where: dict[str, Any] = {name: getattr(launch, name) or None for name in names}
    return TransloadOperator(
        task_id=task_id or _task_id(launch.name),
        app=launch.app,
        component_args=launch.args or None,
        command=launch.command,
        **where,
        **rest,
    )


def _split(source: Any, options: dict[str, Any]) -> tuple[Launch, dict[str, Any]]:
    if _is_search(source):
        raise UnsupportedFeature(
            "source: a Search needs a group of tasks: give it to search_group", "source"
        )
    given = {name: options[name] for name in _LAUNCH_OPTIONS if options.get(name) is not None}
    if "component_args" in given:
        given["args"] = given.pop("component_args")
    return Launch.of(source, **given), {
        name: value for name, value in options.items() if name not in _LAUNCH_OPTIONS
    }


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search; without transload-search, which is an extra, nothing
    is.
    """
    return type(source).__module__.startswith("transload_search.")


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
            "searches": "a group of tasks: each trial a mapped one, suggested round by round",
        },
    )

    def convert(self, source: Any, **host_options: Any) -> TransloadOperator | TaskGroup:
        """Return an operator, of a Search a group of tasks; see `operator_from_app` and
        `search_group`.
        """
        if not _is_search(source):
            return operator_from_app(source, **host_options)
        from transload_airflow.searches import search_group

        name = host_options.pop(
            "task_id", None
        )  # what a group's identity is called, one name for every source
        return search_group(source, **({"group_id": name} if name else {}), **host_options)

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return what a task would submit, of a Search what its first round would; options of its
        own need Airflow.
        """
        if not _is_search(source):
            launch, more = _split(source, host_options)
            return (
                operator_from_app(source, **host_options).dry_run()
                if more
                else dry_run(self.name, launch)
            )
        from transload_search import next_round

        where: dict[str, Any] = {
            "component": source.component,
            "scheduler": source.scheduler,
            "cfg": dict(source.cfg),
        }
        first = [
            (
                Launch(args={**source.constants, **trial.parameters}, **where),
                {"trial_idx": trial.index},
            )
            for trial in next_round(source, None, {})[0]
        ]
        return "\n".join(dry_run(self.name, launch, context_args=known) for launch, known in first)
