"""Run a search as a flow, with a task run for each trial and its state in the tracker base."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from prefect import Flow, Task, get_run_logger
from prefect.context import FlowRunContext
from prefect.exceptions import CancelledRun

from transload.errors import ConfigError, TransloadError
from transload.schedulers.folder.home import state_home
from transload.specs import AppState
from transload_prefect import api
from transload_prefect.artifacts import artifact_key, table, trial_rows
from transload_prefect.background import background
from transload_prefect.convert import dry_run_task
from transload_prefect.states import APP_CANCELLED
from transload_prefect.task import app_task, trial_task
from transload_prefect.watch import watch_of
from transload_search import (
    Search,
    SearchLedger,
    SearchTrial,
    get_suggester,
    next_round,
    stopped_early,
)
from transload_search.check import check_early

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

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
    trial_task = app_task(search.component, name=f"{label}-trial", **settings)
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
        return SearchRun(label, given, trial_task, tracker_base or _default_base()).run()

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


class SearchRun:
    """One run of a search's flow, which goes on where the ledger says that it was."""

    def __init__(self, name: str, search: Search, task: Task[..., Any], tracker_base: str) -> None:
        base = tracker_base
        if "://" not in base:
            base = os.path.abspath(base)
        self._name = name
        self._task = task
        self._logger: Any = get_run_logger()
        self._ledger = SearchLedger(search, base)
        self._context = FlowRunContext.get()
        self._table: Any = None

    def run(self) -> dict[str, Any]:
        """Run the trials that have not ended, a round at a time, and return the ledger's summary.

        Raises:
            SearchFailed: if no trial has an objective, or too many failed.
        """
        self._logger.info("the search is kept in %s", self._ledger.tracker_base)
        number = 0
        while trials := self._ledger.suggest(number):
            self._round([trial for trial in trials if self._ledger.ended(trial.index) is None])
            number += 1
        summary = self._ledger.finish()
        background().post(lambda: self._show(summary))
        best = summary["best"]
        if best is None:  # of several objectives
            return summary
        objective = self._ledger.search.objectives[0].name
        self._logger.info(
            "best: trial %s, %s=%s, %s", best["index"], objective, best["value"], best["parameters"]
        )
        return summary

    def _round(self, trials: list[SearchTrial]) -> None:
        futures = [(trial, self._submit(trial)) for trial in trials]
        problems = []
        for trial, future in futures:
            future.wait()
            try:
                self._observe(trial, future.state)
            except (
                Exception
            ) as exc:  # the others of the round go on, and what they found is written down
                problems.append(exc)
        if trials:
            summary = self._ledger.summary()
            background().post(lambda: self._show(summary))
        if problems:
            raise problems[0]

    def _show(self, summary: Mapping[str, Any]) -> None:
        """Show how far the search is, by a table of its trials as an artifact of the flow run."""
        data = table(trial_rows(summary))
        best = [summary["best"], *summary.get("front", ())]  # the front of several objectives
        shown = ", ".join(str(each["index"]) for each in best if each) or "-"
        text = f"trials of the search kept in {summary['tracker_base']}; best so far: {shown}"
        if self._table is None:
            run = self._context and self._context.flow_run
            self._table = api.create_artifact(
                run and run.id,
                None,
                key=artifact_key(self._name, "trials"),
                type="table",
                data=data,
                description=text,
            )
        else:
            api.update_artifact(self._table, data=data, description=text)

    def _submit(self, trial: SearchTrial) -> Any:
        index, ledger = trial.index, self._ledger
        task: Any = trial_task(
            self._task,
            index,
            f"{self._name}-{index}",
            namespace=ledger.id,
            context_args=ledger.known(index),
            meanwhile=lambda step: stopped_early(ledger, index, step.cancel),
        )
        launch = self._ledger.launch(trial)
        where = {"scheduler": launch.scheduler, "cfg": {**task.spec.launch.cfg, **launch.cfg}}
        parent = task.spec.launch.parent_run_id or launch.parent_run_id
        return task.submit(
            **{**self._ledger.search.constants, **trial.parameters},
            launch={**where, "tracker_base": launch.tracker_base, "parent_run_id": parent},
        )

    def _observe(self, trial: SearchTrial, state: State[Any]) -> None:
        if self._context is not None and watch_of(self._context).cancelled:
            raise CancelledRun(state.message or "the flow run is being cancelled")
        if state.is_completed():
            value = self._ledger.observe(trial.index, state.result())
        elif state.name == APP_CANCELLED:
            reason = state.message or "it was cancelled"
            value = self._ledger.observe(trial.index, None, state=AppState.CANCELLED, reason=reason)
        else:
            found = state.result(raise_on_failure=False)
            error = (
                found
                if isinstance(found, Exception)
                else TransloadError(f"{state.name}: {state.message}")
            )
            if not self._ledger.observe_error(trial.index, error):
                raise error
            value = None
        ended = self._ledger.ended(trial.index) or {}
        names = [each.name for each in self._ledger.search.objectives]
        values = ended.get("values") or {}
        shown = ", ".join(f"{name}={values.get(name)}" for name in names)
        if value is None:
            shown = f"{names[0]}={ended.get('reason')}"
        self._logger.info("trial %s: %s, %s", trial.index, shown, trial.parameters)


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
    launch = {
        "args": {**search.constants, **trials[0].parameters},
        "scheduler": search.scheduler,
    }
    settings.setdefault("cfg", dict(search.cfg))
    trial = app_task(search.component, name=f"{made.name}-trial", launch=launch, **settings)
    how = f"{search.trials} trials, {search.parallelism} at once, as {search.suggester} suggests"
    shown = dry_run_task(trial, context_args={"trial_idx": 0})
    return f"Prefect flow {made.name!r}: {how}\n{shown}"
