"""Tasks from apps: `app_task` makes one, `run_app` makes one and calls it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transload.errors import ConfigError
from transload.pipelines import Launch, caller_folder
from transload_prefect.settings import AppSpec, split_settings
from transload_prefect.task import AppTask


def app_task(source: Any = None, **settings: Any) -> AppTask:
    """Return a Prefect task that runs an app and returns its `transload.runner.AppResults`.

    The task's arguments are the component's; ``launch={"scheduler": …, "cfg": …}`` at the call sets
    where it goes.

    Args:
        source: an AppDef, its JSON, a component (name or function); None: ``command`` says what to
            run.
        settings: what to launch, of `transload.pipelines.Launch` (``component_args``, ``command``,
            ``scheduler``, ``cfg``, ``workspace``, ``tracker_base``, ``parent_run_id``, ``pass_env``,
            ``environment`` …); relative paths are relative to the file that calls this; of
            `transload.pipelines.ExecutionOptions` (``patience``, ``on_kill`` …); of `AppSpec`
            (``cluster``, ``key``, ``artifacts``, ``events``, ``assets``, ``inherit_env``,
            ``stderr_level``); those of ``prefect.task`` (``name``, ``retries``, ``tags``,
            ``timeout_seconds`` …), and ``asynchronous``.

    Raises:
        SpecError: if it is none of these.
        ConfigError: for a wrong or unknown setting.

    Example:
        >>> train = app_task("train.py:digits", retries=2, tags=["training"])  # doctest: +SKIP
        >>> best = max(train.map(lr=[0.1, 0.5]).result(), key=lambda r: r.value("accuracy"))  #
        doctest: +SKIP
    """
    command, more = settings.pop("command", None), settings.pop("launch", None) or {}
    try:
        made = Launch.of(source, **more) if command is None else Launch(command=command, **more)
    except TypeError as exc:
        raise ConfigError(
            f"launch={more!r}: must hold arguments of transload.pipelines.Launch: {exc}"
        ) from exc
    if made.folder is None:
        made = replace(made, folder=caller_folder("transload_prefect"))
    changes, given = split_settings(AppSpec(made), settings)
    asynchronous = given.pop("asynchronous", None)
    return AppTask(replace(AppSpec(made), **changes), asynchronous, **given)


def run_app(source: Any = None, **settings: Any) -> Any:
    """Run an app in a flow, as a task run of its own; return its results. Arguments as of
    `app_task`.

    ``component_args`` and all else may come from upstream results. In async code, use
    `run_app_async`.

    Raises:
        AppFailed: if the app failed, retries used up.
        SpecError: if the app is wrong.
        ConfigError: for a wrong setting.
    """
    return app_task(source, **{**settings, "asynchronous": False})()


def run_app_async(source: Any = None, **settings: Any) -> Any:
    """Return an awaitable that does what `run_app` does; the app is counted when this is called,
    not when awaited.
    """
    return app_task(source, **{**settings, "asynchronous": True})()
