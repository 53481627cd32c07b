"""Make tasks from app definitions with `app_task`, or make one and call it with `run_app`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from transload.errors import ConfigError, SpecError
from transload.pipelines import Launch, caller_folder
from transload_prefect.settings import AppSpec, split_settings
from transload_prefect.task import AppTask

if TYPE_CHECKING:
    from transload_prefect.options import TaskOptions


def app_task(
    source: object = None,
    *,
    command: Sequence[str] | None = None,
    launch: Mapping[str, Any] | None = None,
    **settings: Unpack[TaskOptions],
) -> AppTask:
    """Return a Prefect task that runs a job and returns its `transload.runner.AppResults`.

    The task's arguments are the component's. ``launch={"scheduler": …, "cfg": …}`` at the call sets
    where it goes.

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
            ``events``, ``assets``, ``inherit_env``, ``stderr_level``), those of ``prefect.task``
            (``name``, ``retries``, ``tags``, ``timeout_seconds`` …), and ``asynchronous``.

    Raises:
        SpecError: if it is none of these, or both a source and a command.
        ConfigError: for a wrong or unknown setting.

    Example:
        >>> train = app_task("train.py:digits", retries=2, tags=["training"])  # doctest: +SKIP
        >>> best = max(train.map(lr=[0.1, 0.5]).result(), key=lambda r: r.value("accuracy"))  #
        doctest: +SKIP
    """
    made = _launch(source, command, launch or {})
    if made.folder is None:
        made = replace(made, folder=caller_folder("transload_prefect"))
    changes, given = split_settings(AppSpec(made), settings)
    asynchronous = given.pop("asynchronous", None)
    return AppTask(replace(AppSpec(made), **changes), asynchronous, **given)


def _launch(source: object, command: Sequence[str] | None, more: Mapping[str, Any]) -> Launch:
    if command is not None and source is not None:
        raise SpecError(f"command={command!r}: cannot be given beside a source, {source!r}")
    try:
        if command is not None:
            return Launch(command=command, **more)
        return Launch.of(source, **more)
    except TypeError as exc:
        raise ConfigError(
            f"launch={more!r}: must hold arguments of transload.pipelines.Launch: {exc}"
        ) from exc


def run_app(
    source: object = None,
    *,
    command: Sequence[str] | None = None,
    launch: Mapping[str, Any] | None = None,
    **settings: Unpack[TaskOptions],
) -> Any:
    """Run a job in a flow, as a task run, and return its results.

    The arguments are those of `app_task`. All of them may come from upstream results. In async
    code, use `run_app_async`.

    Raises:
        AppFailed: if the job failed, retries used up.
        SpecError: if the app definition is wrong.
        ConfigError: for a wrong setting.
    """
    settings["asynchronous"] = False
    return app_task(source, command=command, launch=launch, **settings)()


def run_app_async(
    source: object = None,
    *,
    command: Sequence[str] | None = None,
    launch: Mapping[str, Any] | None = None,
    **settings: Unpack[TaskOptions],
) -> Any:
    """Return an awaitable that does what `run_app` does.

    The job is counted when this is called, not when it is awaited.
    """
    settings["asynchronous"] = True
    return app_task(source, command=command, launch=launch, **settings)()
