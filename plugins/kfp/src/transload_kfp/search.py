"""A search as a pipeline of its own: each round a suggestion, a loop over its trials, a sum; or all in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from transload_kfp.generated import python_component
from transload_kfp.launcher_component import launcher_image
from transload_kfp.names import component_name
from transload_kfp.search_steps import encode_search
from transload_kfp.settings import TaskSettings
from transload_search import Search

# A loop's body gets nothing but its item: KFP's local runner puts the item in the place of every upstream output there,
# and loops only over an output called Output. So an item says which trial it is and where.
_SUGGEST: Final = """
def suggest_trials(search: str, tracker_base: str, own: bool, round: int, job_id: str, job_name: str) -> List[str]:
    from transload_kfp.search_steps import Steps, ending, run_base
    base = run_base(tracker_base, job_id, job_name, own=own)
    return ending(lambda: Steps(search, base).suggest(int(round)))
"""
_TRIAL: Final = """
def run_trial(search: str, round: int, trial: str, metrics: dsl.Output[dsl.Metrics]) -> str:
    import json
    from transload_kfp.search_steps import Steps, base_of, ending
    found = ending(lambda: Steps(search, base_of(trial)).run_trial(int(round), trial))
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
    search: str, tracker_base: str, own: bool, job_id: str, job_name: str, metrics: dsl.Output[dsl.Metrics]
) -> NamedTuple("Outputs", [("best", str), ("base", str)]):
    from collections import namedtuple
    from transload_kfp.search_steps import Steps, best_text, ending, log_best, run_base
    base = run_base(tracker_base, job_id, job_name, own=own)
    summary = ending(lambda: Steps(search, base).run_all())
    log_best(metrics, summary)
    return namedtuple("Outputs", "best base")(best_text(summary), base)
"""


def search_pipeline(
    search: Search,
    tracker_base: str,
    *,
    name: str | None = None,
    own: bool = True,
    image: str | None = None,
    packages: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    inherit_env: bool = False,
    retries: int = 0,
) -> Any:
    """Return a pipeline that runs a search: its rounds are laid out when compiling, each trial is a task of its own.

    A round is a task that suggests trials, a loop with one task for each of them, and a task that sums up; the next
    round begins after it. A trial's task ends well when its app has failed: the search goes on without its objective.
    The pipeline is a component too; its output ``best`` is JSON with ``index``, ``parameters``, ``value``.

    Args:
        search: what to search; ``search.scheduler`` runs the trials' apps.
        tracker_base: where the search keeps its state and the trials report; every task and job must see it. Also a
            parameter of the pipeline.
        name: name of the pipeline; default: the component's.
        own: each run searches anew, in a folder of its own below the base; False: runs go on with one search.
        image: of the tasks; it needs KFP, this adapter and the scheduler's.
        packages: installed when a task starts.
        options: of `transload.pipelines.ExecutionOptions`, for each trial.
        inherit_env: give the jobs the tasks' whole environment.
        retries: how often KFP tries a task again; a trial's app is found again, not run twice.

    Raises:
        SpecError: if the search's component cannot be found again elsewhere.
        ConfigError: for a wrong option.
    """
    from kfp import dsl

    text = encode_search(search, options or {}, inherit_env=inherit_env)
    TaskSettings(retries=retries).check()
    where = launcher_image(image, packages)
    steps = [
        python_component(source, function, where, packages)
        for source, function in ((_SUGGEST, "suggest_trials"), (_TRIAL, "run_trial"), (_OBSERVE, "observe_trials"))
    ]

    def run(tracker_base: str = tracker_base) -> str:
        return _rounds(search, text, steps, tracker_base, own=own, retries=retries)

    run.__annotations__ = {"tracker_base": str, "return": str}
    return dsl.pipeline(run, name=component_name(name or f"search-{_title(search)}"))


def _rounds(search: Search, text: str, steps: Sequence[Any], tracker_base: Any, *, own: bool, retries: int) -> Any:
    """Make the tasks of every round, in a pipeline function; return the last one's output ``best``."""
    from kfp import dsl

    suggest, trial, observe = steps
    rounds = -(-search.trials // search.parallelism)
    base = last = None
    for number in range(rounds):
        first = suggest(
            search=text,
            tracker_base=tracker_base if base is None else base,
            own=own and base is None,
            round=number,
            job_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
            job_name=dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
        )
        _set_up(first, f"round {number}: suggest", retries)
        with dsl.ParallelFor(first.output, parallelism=search.parallelism) as item:
            each = _set_up(trial(search=text, round=number, trial=item), f"round {number}: trial", retries)
        outcomes = dsl.Collected(each.outputs["Output"])
        last = observe(search=text, outcomes=outcomes, last=number == rounds - 1)
        _set_up(last, f"round {number}: observe", retries)
        base = last.outputs["base"]
    assert last is not None
    return last.outputs["best"]


def _set_up(task: Any, label: str, retries: int) -> Any:
    task.set_caching_options(False).set_display_name(label)
    return task.set_retry(retries) if retries else task


def search_component(
    search: Search,
    tracker_base: str,
    *,
    own: bool = True,
    image: str | None = None,
    packages: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    inherit_env: bool = False,
    **settings: Any,
) -> Any:
    """Return a component that runs a whole search in one task: the number of rounds may be known only at run time.

    Killed and started again, it goes on where it was. Its outputs are those of `search_pipeline`.

    Args:
        search: what to search.
        tracker_base: as in `search_pipeline`; an input of the component too.
        own: likewise.
        image: of the task.
        packages: installed when the task starts.
        options: of `transload.pipelines.ExecutionOptions`, for each trial.
        inherit_env: give the jobs the task's whole environment.
        settings: of the task; see `TaskSettings`.

    Raises:
        SpecError: if the search's component cannot be found again elsewhere.
        ConfigError: for a wrong option or setting.
    """
    from transload_kfp.component import SearchComponent

    text = encode_search(search, options or {}, inherit_env=inherit_env)
    made = TaskSettings().updated(**settings)
    loaded = python_component(_ALL, "run_search", launcher_image(image, packages), packages)
    return SearchComponent(loaded, {"search": text, "tracker_base": tracker_base, "own": own}, made)


def _title(search: Search) -> str:
    component = search.component
    return component if isinstance(component, str) else str(getattr(component, "__name__", "app"))
