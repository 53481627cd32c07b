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
from transload_kfp.launcher import (
    check_run_options,
    cluster_of,
    launcher_image,
    program,
    refuse_unknown,
)
from transload_kfp.names import component_name
from transload_kfp.pod import use_secrets
from transload_kfp.ports import IDENTITY, InputPort, own_output
from transload_kfp.search_steps import encode_search
from transload_search import Search

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

    from transload.runner import Cluster
    from transload_kfp.component import AppComponent

_BASE: Final = {"tracker_base": "String", "own": "Boolean"}
_SUM: Final = {"best": "String", "base": "String", "metrics": "Metrics"}
# A loop's body gets nothing but its item: KFP's local runner puts the item in the place of every
# upstream output there, and loops only over an output called Output. So an item says which trial it
# is and where.
_STEPS: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "suggest-trials": ({**_BASE, "round": "Integer"}, {"Output": "List"}),
    "run-trial": (
        {"round": "Integer", "trial": "String"},
        {"Output": "String", "metrics": "Metrics"},
    ),
    "observe-trials": ({"outcomes": "List", "last": "Boolean"}, _SUM),
    "run-search": (_BASE, _SUM),
}
"""The inputs and outputs of each kind of task."""

EachTask = Callable[["PipelineTask"], object]
"""Called with a task, to set by KFP's own calls what it needs."""


class SearchSettings(ExecutionSettings, total=False):
    """What both forms of a search take, as `search_pipeline` describes it."""

    image: str | None
    packages: Sequence[str]
    cluster: Cluster | Mapping[str, Any] | None
    pass_env: Sequence[str]
    inherit_env: bool


def search_pipeline(
    search: Search,
    tracker_base: str,
    *,
    name: str | None = None,
    own: bool = True,
    each_task: EachTask | None = None,
    **settings: Unpack[SearchSettings],
) -> Any:
    """Return a pipeline that runs a search, with each trial as a task.

    Its rounds are laid out when compiling. A round is a task that suggests trials, a loop with one
    task for each of them, and a task that sums up. Then the next round begins. A trial's task
    succeeds when its job has failed, and the search goes on without its objective. The pipeline is
    a component too. Its output ``best`` is JSON with ``index``, ``parameters``, ``value``,
    ``handle``.

    Args:
        search: what to search. Its ``scheduler`` runs the trials' jobs.
        tracker_base: where the search keeps its state and the trials report. Every task and job
            must see it. Also a parameter of the pipeline.
        name: name of the pipeline, by default the component's.
        own: each run searches anew, in a folder of its own below the base. With False, runs go on
            with one search.
        each_task: called with each task of the pipeline, to set by KFP's own calls what it needs,
            such as secrets for the tracker base. A task that is tried again reattaches to its
            trial's job, and does not run it twice.
        settings: of the tasks, and of how each trial's job is run.

            - ``image`` of the tasks, with this adapter, transload-search and the scheduler's
              plugin. Must be given, unless ``packages`` bring them.
            - ``packages``, installed when a task starts.
            - ``cluster``, where the trials' jobs run, in place of ``search.scheduler``, as in
              `launcher_from_app`.
            - ``pass_env``: variables of the tasks that the jobs get, by patterns: ``["HF_*"]``.
            - ``inherit_env``: give the jobs the tasks' whole environment.
            - Of the jobs, see `transload.pipelines.ExecutionOptions`.

    Raises:
        SpecError: if the search's component cannot be found again elsewhere, or there is no image.
        ConfigError: for a wrong setting.
    """
    from kfp import dsl

    kinds = ("suggest-trials", "run-trial", "observe-trials")
    suggest, trial, observe = _components(search, kinds, **settings)

    def made(component: AppComponent, label: str, **inputs: Any) -> PipelineTask:
        task = component(**inputs).set_display_name(label)
        if each_task is not None:
            each_task(task)
        return task

    def run(tracker_base: str = tracker_base) -> str:
        where: dict[str, Any] = {"tracker_base": tracker_base, "own": own}
        best: Any = None
        for number in range(search.rounds):
            title = f"round {number}"
            trials = made(suggest, f"{title}: suggest", round=number, **where)
            with dsl.ParallelFor(trials.output, parallelism=search.parallelism) as item:
                each = made(trial, f"{title}: trial", round=number, trial=item)
            outcomes: Any = dsl.Collected(each.outputs["Output"])
            last = number == search.rounds - 1
            summed = made(observe, f"{title}: observe", outcomes=outcomes, last=last)
            where = {"tracker_base": summed.outputs["base"], "own": False}
            best = summed.outputs["best"]
        return best  # type: ignore[no-any-return]

    run.__annotations__ = {"tracker_base": str, "return": str}
    component = search.component
    title = component if isinstance(component, str) else component.__name__
    return dsl.pipeline(run, name=component_name(name or f"search-{title}"))


def search_component(
    search: Search,
    tracker_base: str,
    *,
    own: bool = True,
    **settings: Unpack[SearchSettings],
) -> AppComponent:
    """Return a component that runs a whole search in one task.

    The number of rounds may be known only at run time. Killed and started again, the task goes on
    where it was. Its outputs are those of `search_pipeline`.

    Args:
        search: what to search.
        tracker_base: as in `search_pipeline`. It is an input of the component too.
        own: likewise.
        settings: likewise, of the one task.

    Raises:
        SpecError: if the search's component cannot be found again elsewhere, or there is no image.
        ConfigError: for a wrong setting.
    """
    constants = {"tracker_base": tracker_base, "own": own}
    (made,) = _components(search, ["run-search"], constants, **settings)
    return made


def _components(
    search: Search,
    kinds: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    *,
    image: str | None = None,
    packages: Sequence[str] = (),
    cluster: Cluster | Mapping[str, Any] | None = None,
    pass_env: Sequence[str] = (),
    inherit_env: bool = False,
    **options: Unpack[ExecutionSettings],
) -> list[AppComponent]:
    """Return the component of each kind of task."""
    refuse_unknown(options, (*SearchSettings.__annotations__, "each_task"))
    where, secrets = cluster_of(cluster)
    check_run_options(search.cfg, search.scheduler if where is None else where["kind"])
    if where is not None:
        search = replace(search, scheduler=where["name"])
    if pass_env:
        search = replace(search, cfg={**search.cfg, "pass_env": as_list(pass_env, "pass_env")})
    text = encode_search(search, options, cluster=where, inherit_env=inherit_env)
    image = launcher_image(image, packages, ("kfp", "search"))
    prepare = partial(_prepared, secrets=secrets)
    return [
        _component(kind, program(kind, text, image, packages), prepare, constants) for kind in kinds
    ]


def _component(
    kind: str,
    container: Mapping[str, Any],
    prepare: EachTask,
    constants: Mapping[str, Any] | None,
) -> AppComponent:
    from transload_kfp.component import AppComponent

    inputs, outputs = _STEPS[kind]
    made = AppComponent(
        kind,
        container,
        [InputPort(source=name, name=name, type=type_) for name, type_ in inputs.items()],
        [own_output(name, type_, "") for name, type_ in outputs.items()],
        identity=() if kind == "observe-trials" else IDENTITY[:2],  # the run
        prepare=prepare,
        constants=constants,
    )
    found = made.component_spec.outputs
    if "output" in found:
        found["Output"] = found.pop("output")  # component YAML has small letters only
    return made


def _prepared(task: PipelineTask, *, secrets: Mapping[str, str]) -> None:
    """Give a task of a search what it needs. Its results are never taken from the cache."""
    task.set_caching_options(False)
    use_secrets(task, secrets)
