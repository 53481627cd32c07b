"""From an app to a Prefect task. Pure: nothing runs here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from transload.errors import ConfigError
from transload.pipelines import (
    AdapterCapabilities,
    ExecutionOptions,
    Launch,
    caller_folder,
    dry_run,
)
from transload.specs import nearest
from transload_prefect.run import HOST
from transload_prefect.states import STATES

if TYPE_CHECKING:
    from transload_prefect.task import AppSpec, AppTask
    from transload_search import Search

_OWN = ("cluster", "inherit_env", "key", "artifacts", "events", "assets", "stderr_level")


def app_task(source: Any = None, **settings: Any) -> AppTask:
    """Return a Prefect task that runs an app and returns its `transload.runner.AppResults`.

    The task's arguments are the component's; ``launch={"scheduler": …, "cfg": …}`` at the call sets
    where it goes.

    Args:
        source: an AppDef, its JSON, a component (name or function); None: ``command`` says what to
            run.
        settings: what to launch, of `transload.pipelines.Launch` (``component_args``, ``command``,
            ``scheduler``, ``cfg``, ``workspace``, ``tracker_base``, ``parent_run_id``, ``pass_env``
            …); relative paths are relative to the file that calls this; of
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
    from transload_prefect.task import AppSpec, AppTask

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


def split_settings(
    spec: AppSpec, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the changes of a spec, and what is left for Prefect.

    Raises:
        ConfigError: for a wrong or unknown setting.
    """
    import inspect

    from prefect import Task

    options = {each.name for each in fields(ExecutionOptions)}
    prefect = set(inspect.signature(Task.__init__).parameters) - {"self", "fn"} | {"asynchronous"}
    launch = {each.name for each in fields(Launch)} - {"app", "component", "command", "args"} | {
        "component_args"
    }
    known = [*options, *prefect, *launch, *_OWN]
    for name, value in settings.items():
        if name not in known:
            hint = nearest("component_args" if name == "args" else name, known)
            raise ConfigError(f"{name}={value!r}: no setting of a task or of an app; {hint}")
    changes: dict[str, Any] = {name: settings[name] for name in _OWN if name in settings}
    if any(name in options for name in settings):
        changes["options"] = replace(
            spec.options, **{k: v for k, v in settings.items() if k in options}
        )
    if any(name in launch for name in settings):
        told = {
            "args" if k == "component_args" else k: v for k, v in settings.items() if k in launch
        }
        changes["launch"] = replace(spec.launch, **told)
    return changes, {name: value for name, value in settings.items() if name in prefect}


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search; without transload-search, which is an extra, nothing
    is.
    """
    return type(source).__module__.startswith("transload_search.")


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


class PrefectAdapter:
    """The adapter that ``transload.pipelines.get_adapter("prefect")`` returns."""

    name = "prefect"
    state_map = STATES
    capabilities = AdapterCapabilities(
        deferred=True,
        searches=True,
        notes={
            "deferred": "one thread a scheduler watches its apps; async tasks and AppTaskRunner hold none of their own",
            "searches": "a flow, a task run for each trial; its state is in the search's tracker base",
            "retries": "a retry of the task is a new attempt",
        },
    )

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return a task (see `app_task`), or for a `transload_search.Search` a flow (see
        `search_flow`).
        """
        if _is_search(source):
            from transload_prefect.search import search_flow

            return search_flow(source, **host_options)
        return app_task(source, **host_options)

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return what the task, or the first trial of a search, would submit; arguments as of
        `convert`.
        """
        if not _is_search(source):
            return self._dry_run_task(app_task(source, **host_options), {})
        from transload_search import next_round

        search, made = source, self.convert(source, **host_options)
        more = {
            name: value
            for name, value in host_options.items()
            if name not in ("name", "tracker_base", "flow")
        }
        trials, _ = next_round(search, None, {}, 1)
        launch = {
            "args": {**search.constants, **trials[0].parameters},
            "scheduler": search.scheduler,
        }
        shown = app_task(
            search.component,
            name=f"{made.name}-trial",
            **{"launch": launch, "cfg": dict(search.cfg), **more},
        )
        how = (
            f"{search.trials} trials, {search.parallelism} at once, as {search.suggester} suggests"
        )
        return f"Prefect flow {made.name!r}: {how}\n{self._dry_run_task(shown, {'trial_idx': 0})}"

    def _dry_run_task(self, task: AppTask, known: Mapping[str, Any]) -> str:
        from transload_prefect.cluster import cluster_named
        from transload_prefect.run import on_cluster, runner_of

        spec = task.spec
        cluster = None if spec.cluster is None else cluster_named(spec.cluster)
        runner = runner_of(cluster, spec.inherit_env)
        request = dry_run(
            HOST, on_cluster(spec.launch, cluster), spec.options, context_args=known, runner=runner
        )
        return f"Prefect task {task.name!r} (retries: {task.retries}, tags: {sorted(task.tags)})\n{request}"
