"""Run a job where the code of a flow or a task asks for it: `run_app`, `run_app_async`."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from prefect.logging import get_run_logger

from transload.errors import ConfigError
from transload_prefect.again import note_done
from transload_prefect.cluster import cluster_named
from transload_prefect.runs import here
from transload_prefect.settings import AppSpec, read_spec
from transload_prefect.step import PrefectStep, on_cluster, within_time_limit
from transload_prefect.traces import Traces

if TYPE_CHECKING:
    from transload.pipelines import Launch
    from transload.runner import AppResults
    from transload_prefect.options import AppOptions

_LONGEST_NAME: Final = 200  # characters of a job's name


def run_app(
    source: object = None,
    *,
    command: Sequence[str] | None = None,
    launch: Mapping[str, Any] | None = None,
    **settings: Unpack[AppOptions],
) -> AppResults:
    """Run a job in a flow or in a task, and return its results.

    Args:
        source: an AppDef, its JSON, a component (name or function), or None if ``command`` says
            what to run.
        command: a program and its arguments, in place of a source.
        launch: arguments of `transload.pipelines.Launch`, by name. What ``settings`` say goes
            before it.
        settings: what to launch, of `transload.pipelines.Launch` (``component_args``,
            ``scheduler``, ``cfg``, ``workspace``, ``tracker_base``, ``parent_run_id``,
            ``pass_env``, ``environment`` …), whose relative paths are relative to the file that
            calls this, of `transload.pipelines.ExecutionOptions` (``patience``, ``on_kill``,
            ``checkpoints`` …), of `transload.pipelines.JobSettings` (``image``, ``gpu``, ``mem``,
            ``notice`` …, set over what the job says, with ``overrides`` for names that are
            Prefect's own, such as ``retries``), of `AppSpec` (``cluster``, ``key``, ``artifacts``,
            ``events``, ``assets``, ``inherit_env``, ``stderr_level``), and ``name``, of the job.

    Raises:
        AppFailed: if the job failed.
        AppCancelled: if somebody cancelled it.
        Detached: if the flow run ends, and the job goes on.
        TransloadTimeout: if a limit passed. The job was cancelled.
        SpecError: if the app definition is wrong, or another task asks for the same job.
        ConfigError: for a wrong or unknown setting, or outside of a flow and a task.
    """
    step = _step(source, command, launch, settings)
    with step.watched():
        return step.run()


async def run_app_async(
    source: object = None,
    *,
    command: Sequence[str] | None = None,
    launch: Mapping[str, Any] | None = None,
    **settings: Unpack[AppOptions],
) -> AppResults:
    """Do what `run_app` does, without blocking the event loop."""
    step = _step(source, command, launch, settings)
    with step.watched():
        return await step.run_async()


def _step(
    source: object,
    command: Sequence[str] | None,
    launch: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> PrefectStep:
    spec, given = read_spec(source, command, launch, settings, ["name"])
    name = given.get("name")
    return step_of(spec, named(spec.launch, name), name or spec.launch.name)


def step_of(
    spec: AppSpec,
    launch: Launch,
    name: str,
    *,
    at_call: Any = None,
    is_task: bool = False,
    namespace: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> PrefectStep:
    """Return the job that the code around this asks for. Nothing is submitted yet.

    Args:
        spec: how it runs.
        launch: what to submit.
        name: of the task that the job is, else of the job.
        at_call: what the call of a task has set of the launch.
        is_task: the task around this code is the job, and does nothing else.
        namespace: tells the job from those of others, in place of the flow run's id.
        arguments: what the component may declare (``trial_idx`` …).

    Raises:
        ConfigError: outside of a flow and a task, for an unknown cluster, or for assets of a flow.
        SpecError: if its key is asked for twice.
    """
    asked = {"what": _asked_for(launch), "launch": at_call}
    run = here(name, asked, spec.key, is_task=is_task)
    if spec.assets and run.task is None:
        raise ConfigError(f"assets={spec.assets!r}: only a task makes assets, and this is a flow")
    cluster = None
    if spec.cluster is not None:
        cluster = cluster_named(spec.cluster)
    stderr_level = None
    if spec.stderr_level is not None:
        stderr_level = logging.getLevelNamesMapping()[spec.stderr_level]
    traces = Traces(
        run,
        get_run_logger(),
        artifacts=spec.artifacts,
        events=spec.events,
        stderr_level=stderr_level,
    )
    step = PrefectStep(
        run,
        on_cluster(launch, cluster),
        within_time_limit(run, spec.options),
        traces=traces,
        key=spec.key,
        namespace=namespace,
        cluster=cluster,
        inherit_env=spec.inherit_env,
        arguments=arguments,
        assets=spec.assets,
    )
    note_done(traces.notes)
    return step


def _asked_for(launch: Launch) -> Any:
    """Return what a launch asks for, which tells it from others.

    That is what the program is to do, without how it is run: a job that is given more memory is the
    same one.
    """
    if launch.command is not None:
        return list(launch.command)
    if launch.component is not None:
        return launch.args
    roles = launch.build().roles
    return [[role.name, role.entrypoint, list(role.args), role.num_replicas] for role in roles]


def named(launch: Launch, name: str | None) -> Launch:
    """Return the launch of a job that has the name which somebody gave it in Prefect, if any.

    What a job's name may not hold is replaced. A name that the launch sets itself goes before it.
    """
    if name is None or launch.overrides.get("name") is not None:
        return launch
    safe = re.sub(r"[/\\\x00-\x1f\x7f]", "-", name)[:_LONGEST_NAME].lstrip("-. ")
    return launch.with_overrides({"name": safe}) if safe else launch
