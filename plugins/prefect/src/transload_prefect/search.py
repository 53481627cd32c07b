"""Run a search as a flow, with a task run for each trial and its state in the tracker base."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from prefect import Flow, Task, get_run_logger
from prefect.context import FlowRunContext
from prefect.futures import wait
from prefect.runtime import flow_run

from transload.errors import ConfigError, TransloadError
from transload.schedulers.folder.home import state_home
from transload_prefect import api
from transload_prefect.artifacts import artifact_key, table, trial_rows
from transload_prefect.convert import dry_run_task
from transload_prefect.run import step_of
from transload_prefect.settings import read_spec
from transload_prefect.task import OF_PREFECT, app_task, may_retry, state_of
from transload_search import (
    Search,
    SearchLedger,
    SearchTrial,
    get_suggester,
    next_round,
    run_trial,
    suggest_round,
)
from transload_search.check import check_early
from transload_search.progress import best_words

if TYPE_CHECKING:
    from transload_prefect.options import TrialOptions


def search_flow(
    search: Search,
    *,
    name: str | None = None,
    tracker_base: str | None = None,
    flow: Mapping[str, Any] | None = None,
    **settings: Unpack[TrialOptions],
) -> Flow[Any, dict[str, Any]]:
    """Return a Prefect flow that runs a search, with a task run for each trial.

    It returns `SearchLedger.summary`. Called in another flow it is a subflow. Its parameters, all
    optional, are ``tracker_base``, ``trials``, ``parallelism``, ``scheduler`` and ``constants``
    (the component's other arguments, added to the search's own). Run again after a crash, or with
    the same tracker base, it goes on. Trials that ended are not run again, and it attaches to those
    that run.

    Args:
        search: the component, its parameters, the objective.
        name: of the flow, by default ``search-`` and the component's.
        tracker_base: where the search is kept, a folder or any fsspec URL. By default it is a
            folder for each flow run below the state folder, which a cluster may not see.
        flow: arguments of ``prefect.flow`` (``retries``, ``timeout_seconds``, ``task_runner`` …).
        settings: of the tasks that run the trials, as of `app_task` (``retries``, ``tags``,
            ``patience`` …).

    Raises:
        SpecError: if there is no such component, or its arguments are not those of the search.
        ConfigError: for a wrong or unknown setting, or suggester.

    Example:
        >>> tune = search_flow(Search("train.py:digits", [Parameter("lr", "float", 0.01, 1.0,
        log=True)], ...     Objective("accuracy", minimize=False), trials=12, parallelism=4))  #
        doctest: +SKIP
        >>> tune(constants={"epochs": 8})["best"]  # doctest: +SKIP
    """
    get_suggester(search)
    check_early(search, more_constants=True)
    component = search.component if isinstance(search.component, str) else search.component.__name__
    label = name or f"search-{component.rpartition('/')[2]}"
    task = _trial_task(search, label, settings)
    own_base = tracker_base

    def run(
        tracker_base: str | None = own_base,
        trials: int = search.trials,
        parallelism: int = search.parallelism,
        scheduler: str | None = search.scheduler,
        constants: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        more = {**search.constants, **(constants or {})}
        given = replace(
            search, trials=trials, parallelism=parallelism, scheduler=scheduler, constants=more
        )
        return _run(label, SearchLedger(given, tracker_base or _default_base()), task)

    run.__name__ = run.__qualname__ = label
    goals = ", ".join(each.name for each in search.objectives)
    run.__doc__ = (
        f"Search for the best {goals}: {search.trials} trials, {search.parallelism} at once."
    )
    try:
        return Flow(run, name=label, **(flow or {}))
    except TypeError as exc:
        raise ConfigError(f"flow={flow!r}: must hold arguments of prefect.flow: {exc}") from exc


def _default_base() -> str:
    """Return a folder of the search's own.

    It is the same when the flow run, or the one that called it, is run again.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise ConfigError("a search runs inside a flow run: call the flow, not its function")
    # a subflow may be a new flow run then, but what called it stays
    place = context.flow_run.parent_task_run_id or context.flow_run.id
    return os.path.join(state_home(), "searches", f"prefect-{place}")


def _run(label: str, ledger: SearchLedger, task: Task[..., Any]) -> dict[str, Any]:
    """Run the trials that have not ended, a round at a time, and return the search's summary.

    Raises:
        SearchFailed: if no trial has an objective, or too many failed.
    """
    logger = get_run_logger()
    logger.info("the search is kept in %s", ledger.tracker_base)
    search = ledger.search.to_dict()
    shown = None
    number = 0
    while trials := suggest_round(ledger, number, logger.info):
        futures = {
            each["index"]: task.submit(search=search, tracker_base=ledger.tracker_base, **each)
            for each in trials
            if ledger.ended(each["index"]) is None
        }
        wait(list(futures.values()))
        shown = _show(label, ledger.summary(), shown)
        for index, future in futures.items():
            if ledger.ended(index) is None:
                future.result()  # raises what kept it from an end
        number += 1
    summary = ledger.finish()
    logger.info(", ".join(best_words(summary)))
    return summary


def _trial_task(search: Search, label: str, settings: Mapping[str, Any]) -> Task[..., Any]:
    """Return the task of a trial. Whoever continues the search reattaches to the trial's job."""
    spec, given = read_spec(search.component, None, None, settings, OF_PREFECT)
    spec.launch.resolve_component()  # refuses one that does not exist, before the flow runs

    def trial(
        search: dict[str, Any], tracker_base: str, index: int, parameters: dict[str, Any]
    ) -> Any:
        ledger = SearchLedger(Search.from_dict(search), tracker_base)
        launch = ledger.launch(SearchTrial(index, parameters), spec.launch)
        try:
            step = step_of(
                replace(spec, key=f"trial-{index}"),
                launch,
                label,
                is_task=True,
                namespace=ledger.id,
                arguments=ledger.known(index),
            )
            with step.watched():
                return run_trial(ledger, index, step)
        except TransloadError as exc:
            return state_of(exc)
        finally:
            get_run_logger().info(ledger.end_text(index))

    defaults = {
        "name": f"{label}-trial",
        "task_run_name": f"{label}-{{index}}",
        "retry_condition_fn": partial(may_retry, options=spec.options),
    }
    return Task(trial, **{**defaults, **given})


def _show(label: str, summary: Mapping[str, Any], shown: Any) -> Any:
    """Show how far the search is, by a table of its trials as an artifact of the flow run.

    Returns:
        The artifact, which the next call gets as ``shown``.
    """
    best = ", ".join(best_words(summary)) or "no trial has a value yet"
    data = table(trial_rows(summary))
    text = f"trials of the search kept in {summary['tracker_base']}; {best}"
    try:
        if shown is not None:
            api.update_artifact(shown, data=data, description=text)
            return shown
        key = artifact_key(label, "trials")
        run = flow_run.get_id()
        return api.create_artifact(run, None, key=key, type="table", data=data, description=text)
    except Exception as exc:  # of Prefect's API: the search goes on
        get_run_logger().warning("the table of trials is not shown: %s", exc)
        return shown


def dry_run_search(
    search: Search,
    *,
    name: str | None = None,
    tracker_base: str | None = None,
    flow: Mapping[str, Any] | None = None,
    **settings: Unpack[TrialOptions],
) -> str:
    """Return what the first trial of a search would submit. Arguments are as of `search_flow`."""
    made = search_flow(search, name=name, tracker_base=tracker_base, flow=flow, **settings)
    trials, _ = next_round(search, None, {}, 1)
    task = app_task(search.launch(trials[0]), name=f"{made.name}-trial", **settings)
    how = f"{search.trials} trials, {search.parallelism} at once, as {search.suggester} suggests"
    shown = dry_run_task(task, context_args={"trial_idx": 0})
    return f"Prefect flow {made.name!r}: {how}\n{shown}"
