"""A search as a pipeline, or all in one task.

Each round of the pipeline is a suggestion, a loop over its trials, and a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Unpack

from transload.pipelines import ExecutionSettings
from transload.specs.checks import as_list
from transload_kfp.launch_spec import check_run_options, how_and_where
from transload_kfp.launcher import launcher_image
from transload_kfp.names import component_name
from transload_kfp.search_steps import encode_search
from transload_kfp.settings import TaskOptions, TaskSettings
from transload_search import Search

if TYPE_CHECKING:
    from transload.runner import Cluster
    from transload_kfp.component import AppComponent

# A loop's body gets nothing but its item: KFP's local runner puts the item in the place of every
# upstream output there, and loops only over an output called Output. So an item says which trial it
# is and where.
_SUGGEST: Final = """
def suggest_trials(
    search: str, tracker_base: str, own: bool, round: int, transload_job_id: str, transload_job_name: str
) -> List[str]:
    from transload_kfp.search_steps import Steps, ending, run_base
    base = run_base(tracker_base, transload_job_id, transload_job_name, own=own)
    return ending(lambda: Steps(search, base).suggest(int(round)))
"""
_TRIAL: Final = """
def run_trial(
    search: str, round: int, trial: str, transload_job_id: str, metrics: dsl.Output[dsl.Metrics]
) -> str:
    import json
    from transload_kfp.search_steps import Steps, base_of, ending
    steps = ending(lambda: Steps(search, base_of(trial), transload_job_id))
    found = ending(lambda: steps.run_trial(int(round), trial))
    for name in ("index", "value"):
        if found.get(name) is not None:
            metrics.log_metric(name, found[name])
    return json.dumps(found)
"""
_OBSERVE: Final = """
def observe_trials(
    search: str, outcomes: List[str], last: bool, metrics: dsl.Output[dsl.Metrics]
) -> NamedTuple("Outputs", [("best", str), ("base", str)]):
    import json
    from collections import namedtuple
    from transload_kfp.search_steps import Steps, best_text, ending, log_best
    base = json.loads(outcomes[0])["base"]
    ledger = ending(lambda: Steps(search, base).ledger)
    summary = ending(ledger.finish) if last else ledger.summary()
    log_best(metrics, summary)
    return namedtuple("Outputs", "best base")(best_text(summary), base)
"""
_ALL: Final = """
def run_search(
    search: str, tracker_base: str, own: bool, transload_job_id: str, transload_job_name: str,
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple("Outputs", [("best", str), ("base", str)]):
    from collections import namedtuple
    from transload_kfp.search_steps import Steps, best_text, ending, log_best, run_base
    base = run_base(tracker_base, transload_job_id, transload_job_name, own=own)
    summary = ending(lambda: Steps(search, base, transload_job_id).run_all())
    log_best(metrics, summary)
    return namedtuple("Outputs", "best base")(best_text(summary), base)
"""


_IDENTITY: Final = ("transload_job_id", "transload_job_name")
_NEEDS: Final = ("kfp", "search")


class SearchSettings(ExecutionSettings, TaskOptions, total=False):
    """Settings of a search, for how each trial's job is run, and for every task."""


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
    **settings: Unpack[SearchSettings],
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
        image: of the tasks. It needs KFP, this adapter and the scheduler's. Must be given, unless
            ``packages`` bring this adapter and transload-search.
        packages: installed when a task starts.
        cluster: where the trials' jobs run, in place of ``search.scheduler``, as in
            `launcher_from_app`.
        pass_env: variables of the tasks that the jobs get, by patterns: ``["HF_*"]``.
        inherit_env: give the jobs the tasks' whole environment.
        settings: of how each trial's job is run, see `transload.pipelines.ExecutionOptions`, and of
            every task, see `TaskSettings`: ``secrets`` for the tracker base, for example. With
            ``retries`` a task reattaches to its trial's job, and does not run it twice.

    Raises:
        SpecError: if the search's component cannot be found again elsewhere, or there is no image.
        ConfigError: for a wrong setting.
    """
    from kfp import dsl

    from transload_kfp.component import python_component

    text, made = _carried(search, cluster, settings, pass_env, inherit_env=inherit_env)
    where = launcher_image(image, packages, _NEEDS)
    steps = [
        _step(python_component(source, function, where, packages), made, {"search": text})
        for source, function in (
            (_SUGGEST, "suggest_trials"),
            (_TRIAL, "run_trial"),
            (_OBSERVE, "observe_trials"),
        )
    ]

    def run(tracker_base: str = tracker_base) -> str:
        return _rounds(search, steps, tracker_base, own=own)

    run.__annotations__ = {"tracker_base": str, "return": str}
    return dsl.pipeline(run, name=component_name(name or f"search-{_title(search)}"))


def _carried(
    search: Search,
    cluster: Cluster | Mapping[str, Any] | None,
    settings: SearchSettings,
    pass_env: Sequence[str],
    *,
    inherit_env: bool,
) -> tuple[str, TaskSettings]:
    """Return what the tasks of a search carry, and their settings."""
    options, where, made = how_and_where(settings, cluster)
    check_run_options(search.cfg, search.scheduler if where is None else where["kind"])
    if where is not None:
        search = replace(search, scheduler=where["name"])
    if pass_env:
        search = replace(search, cfg={**search.cfg, "pass_env": as_list(pass_env, "pass_env")})
    return encode_search(search, options, cluster=where, inherit_env=inherit_env), made


def _step(loaded: Any, settings: TaskSettings, constants: Mapping[str, Any]) -> AppComponent:
    from transload_kfp.component import AppComponent

    spec = loaded.component_spec
    return AppComponent(
        spec, {}, [each for each in _IDENTITY if each in spec.inputs], settings, constants
    )


def _rounds(search: Search, steps: Sequence[AppComponent], tracker_base: Any, *, own: bool) -> Any:
    """Make the tasks of every round, in a pipeline function.

    Return the last one's output ``best``.
    """
    from kfp import dsl

    suggest, trial, observe = steps
    rounds = -(-search.trials // search.parallelism)
    base = last = None
    for number in range(rounds):
        is_last = number == rounds - 1
        where: dict[str, Any] = {"tracker_base": tracker_base, "own": own}
        if base is not None:
            where = {"tracker_base": base, "own": False}
        first = _labelled(suggest, suggest(round=number, **where), f"round {number}: suggest")
        with dsl.ParallelFor(first.output, parallelism=search.parallelism) as item:
            each = _labelled(trial, trial(round=number, trial=item), f"round {number}: trial")
        outcomes = dsl.Collected(each.outputs["Output"])
        last = _labelled(
            observe, observe(outcomes=outcomes, last=is_last), f"round {number}: observe"
        )
        base = last.outputs["base"]
    assert last is not None
    return last.outputs["best"]


def _labelled(step: AppComponent, task: Any, label: str) -> Any:
    """Show a task of a step under a label. What the user has set of it stays."""
    if step.settings.caching is None:
        task.set_caching_options(False)
    return task.set_display_name(step.settings.display_name or label)


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
    **settings: Unpack[SearchSettings],
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
        settings: as in `search_pipeline`, of the one task.

    Raises:
        SpecError: if the search's component cannot be found again elsewhere, or there is no image.
        ConfigError: for a wrong setting.
    """
    from transload_kfp.component import python_component

    text, made = _carried(search, cluster, settings, pass_env, inherit_env=inherit_env)
    loaded = python_component(_ALL, "run_search", launcher_image(image, packages, _NEEDS), packages)
    return _step(loaded, made, {"search": text, "tracker_base": tracker_base, "own": own})


def _title(search: Search) -> str:
    component = search.component
    if isinstance(component, str):
        return component
    return str(getattr(component, "__name__", "app"))
