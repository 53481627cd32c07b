"""A search as a pipeline, or all in one task.

Each round of the pipeline is a suggestion, a loop over its trials, and a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from transload.pipelines import ExecutionSettings
from transload.specs.checks import as_list
from transload_kfp.launch_spec import check_run_options, cluster_of
from transload_kfp.launcher import launcher_image, program, refuse_unknown
from transload_kfp.names import component_name
from transload_kfp.pod import use_secrets
from transload_kfp.ports import InputPort
from transload_kfp.search_steps import encode_search
from transload_search import Search

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

    from transload.runner import Cluster
    from transload_kfp.component import AppComponent

_IDENTITY: Final = ("transload_job_id", "transload_job_name")
_NEEDS: Final = ("kfp", "search")
# A loop's body gets nothing but its item: KFP's local runner puts the item in the place of every
# upstream output there, and loops only over an output called Output. So an item says which trial it
# is and where.
_STEPS: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "suggest-trials": (
        {"tracker_base": "String", "own": "Boolean", "round": "Integer"},
        {"Output": "List"},
    ),
    "run-trial": (
        {"round": "Integer", "trial": "String"},
        {"Output": "String", "metrics": "Metrics"},
    ),
    "observe-trials": (
        {"outcomes": "List", "last": "Boolean"},
        {"best": "String", "base": "String", "metrics": "Metrics"},
    ),
    "run-search": (
        {"tracker_base": "String", "own": "Boolean"},
        {"best": "String", "base": "String", "metrics": "Metrics"},
    ),
}
"""The inputs and outputs of each kind of task."""

EachTask = Callable[["PipelineTask"], object]
"""Called with a task, to set by KFP's own calls what it needs."""


def search_pipeline(
    search: Search,
    tracker_base: str,
    *,
    name: str | None = None,
    own: bool = True,
    image: str | None = None,
    packages: Sequence[str] = (),
    cluster: Cluster | Mapping[str, Any] | None = None,
    pass_env: Sequence[str] = (),
    inherit_env: bool = False,
    each_task: EachTask | None = None,
    **settings: Unpack[ExecutionSettings],
) -> Any:
    """Return a pipeline that runs a search, with each trial as a task.

    Its rounds are laid out when compiling. A round is a task that suggests trials, a loop with one
    task for each of them, and a task that sums up. Then the next round begins. A trial's task
    succeeds when its job has failed, and the search goes on without its objective. The pipeline is
    a component too. Its output ``best`` is JSON with ``index``, ``parameters``, ``value``.

    Args:
        search: what to search. Its ``scheduler`` runs the trials' jobs.
        tracker_base: where the search keeps its state and the trials report. Every task and job
            must see it. Also a parameter of the pipeline.
        name: name of the pipeline, by default the component's.
        own: each run searches anew, in a folder of its own below the base. With False, runs go on
            with one search.
        image: of the tasks, with this adapter, transload-search and the scheduler's plugin. Must be
            given, unless ``packages`` bring them.
        packages: installed when a task starts.
        cluster: where the trials' jobs run, in place of ``search.scheduler``, as in
            `launcher_from_app`.
        pass_env: variables of the tasks that the jobs get, by patterns: ``["HF_*"]``.
        inherit_env: give the jobs the tasks' whole environment.
        each_task: called with each task of the pipeline, to set by KFP's own calls what it needs,
            such as secrets for the tracker base. A task that is tried again reattaches to its
            trial's job, and does not run it twice.
        settings: of how each trial's job is run, see `transload.pipelines.ExecutionOptions`.

    Raises:
        SpecError: if the search's component cannot be found again elsewhere, or there is no image.
        ConfigError: for a wrong setting.
    """
    from kfp import dsl

    text, secrets = _carried(search, cluster, settings, pass_env, inherit_env=inherit_env)
    where = launcher_image(image, packages, _NEEDS)
    steps = [
        _step(each, text, where, packages, partial(_prepared, secrets=secrets))
        for each in ("suggest-trials", "run-trial", "observe-trials")
    ]

    def run(tracker_base: str = tracker_base) -> str:
        return _rounds(search, steps, tracker_base, own=own, each_task=each_task)

    run.__annotations__ = {"tracker_base": str, "return": str}
    return dsl.pipeline(run, name=component_name(name or f"search-{_title(search)}"))


def _carried(
    search: Search,
    cluster: Cluster | Mapping[str, Any] | None,
    settings: ExecutionSettings,
    pass_env: Sequence[str],
    *,
    inherit_env: bool,
) -> tuple[str, dict[str, str]]:
    """Return what the tasks of a search carry, and their secrets."""
    refuse_unknown(settings, ("pass_env", "inherit_env", "each_task"))
    where, secrets = cluster_of(cluster)
    check_run_options(search.cfg, search.scheduler if where is None else where["kind"])
    if where is not None:
        search = replace(search, scheduler=where["name"])
    if pass_env:
        search = replace(search, cfg={**search.cfg, "pass_env": as_list(pass_env, "pass_env")})
    return encode_search(search, settings, cluster=where, inherit_env=inherit_env), secrets


def _step(
    name: str,
    text: str,
    image: str,
    packages: Sequence[str],
    prepare: EachTask,
    constants: Mapping[str, Any] | None = None,
) -> AppComponent:
    """Return the component of a kind of task."""
    from transload_kfp.component import AppComponent

    takes, makes = _STEPS[name]
    identity = [] if name == "observe-trials" else _IDENTITY
    inputs = [InputPort(each, each, kind) for each, kind in takes.items()]
    inputs += [InputPort(each, each) for each in identity]
    content = {
        "name": name,
        "inputs": [port.to_dict() for port in inputs],
        "outputs": [{"name": each, "type": kind} for each, kind in makes.items()],
        "implementation": {"container": program(name, text, image, packages)},
    }
    made = AppComponent(content, {}, identity, prepare, constants)
    outputs = made.component_spec.outputs
    if "output" in outputs:
        outputs["Output"] = outputs.pop("output")  # component YAML has small letters only
    return made


def _prepared(task: PipelineTask, *, secrets: Mapping[str, str]) -> None:
    """Give a task of a search what it needs. Its results are never taken from the cache."""
    task.set_caching_options(False)
    use_secrets(task, secrets)


def _rounds(
    search: Search,
    steps: Sequence[AppComponent],
    tracker_base: Any,
    *,
    own: bool,
    each_task: EachTask | None,
) -> Any:
    """Make the tasks of every round, in a pipeline function.

    Return the last one's output ``best``.
    """
    from kfp import dsl

    suggest, trial, observe = steps

    def labelled(task: Any, label: str) -> Any:
        task.set_display_name(label)
        if each_task is not None:
            each_task(task)
        return task

    rounds = -(-search.trials // search.parallelism)
    base = last = None
    for number in range(rounds):
        title = f"round {number}"
        where: dict[str, Any] = {"tracker_base": tracker_base, "own": own}
        if base is not None:
            where = {"tracker_base": base, "own": False}
        first = labelled(suggest(round=number, **where), f"{title}: suggest")
        with dsl.ParallelFor(first.output, parallelism=search.parallelism) as item:
            each = labelled(trial(round=number, trial=item), f"{title}: trial")
        outcomes = dsl.Collected(each.outputs["Output"])
        is_last = number == rounds - 1
        last = labelled(observe(outcomes=outcomes, last=is_last), f"{title}: observe")
        base = last.outputs["base"]
    assert last is not None
    return last.outputs["best"]


def search_component(
    search: Search,
    tracker_base: str,
    *,
    own: bool = True,
    image: str | None = None,
    packages: Sequence[str] = (),
    cluster: Cluster | Mapping[str, Any] | None = None,
    pass_env: Sequence[str] = (),
    inherit_env: bool = False,
    **settings: Unpack[ExecutionSettings],
) -> AppComponent:
    """Return a component that runs a whole search in one task.

    The number of rounds may be known only at run time. Killed and started again, the task goes on
    where it was. Its outputs are those of `search_pipeline`.

    Args:
        search: what to search.
        tracker_base: as in `search_pipeline`. It is an input of the component too.
        own: likewise.
        image: of the task, as in `search_pipeline`.
        packages: installed when the task starts.
        cluster: likewise.
        pass_env: likewise.
        inherit_env: give the jobs the task's whole environment.
        settings: as in `search_pipeline`.

    Raises:
        SpecError: if the search's component cannot be found again elsewhere, or there is no image.
        ConfigError: for a wrong setting.
    """
    text, secrets = _carried(search, cluster, settings, pass_env, inherit_env=inherit_env)
    where = launcher_image(image, packages, _NEEDS)
    prepare = partial(_prepared, secrets=secrets)
    constants = {"tracker_base": tracker_base, "own": own}
    return _step("run-search", text, where, packages, prepare, constants)


def _title(search: Search) -> str:
    component = search.component
    if isinstance(component, str):
        return component
    return str(getattr(component, "__name__", "app"))
