"""A whole search: make an experiment, run it to the end, go on after a crash."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ax.core.experiment import Experiment
from ax.core.metric import Metric
from ax.early_stopping.strategies import BaseEarlyStoppingStrategy
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.orchestration.orchestrator import OrchestratorOptions

from transload.errors import ConfigError, SpecError
from transload.pipelines import Parameter
from transload_ax.convert import component_path
from transload_ax.keeper import Keeper
from transload_ax.metric import TransloadCurveMetric, TransloadMetric
from transload_ax.orchestrator import TransloadOrchestrator
from transload_ax.progress import Progress
from transload_ax.runner import TransloadRunner
from transload_ax.snapshot import Snapshot
from transload_ax.spaces import optimization, search_space, strategy
from transload_ax.threads import one_thread

if TYPE_CHECKING:
    from ax.storage.sqa_store.structs import DBSettings

logger = logging.getLogger("transload_ax")


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Args:
        experiment: with all trials and data.
        trial: index of the best trial; None if none completed.
        parameters: of the best trial.
        value: its objective.
    """

    experiment: Experiment
    trial: int | None
    parameters: dict[str, Any]
    value: float | None


def make_experiment(
    component: Any,
    parameters: Sequence[Parameter | str],
    objective: str,
    tracker_base: str | os.PathLike[str],
    *,
    minimize: bool = True,
    name: str = "search",
    curve: bool = False,
    constants: Mapping[str, Any] | None = None,
    metrics: Sequence[Metric] = (),
    **runner_options: Any,
) -> Experiment:
    """Return an experiment that searches a component's arguments for the best value of one of its results.

    Args:
        component: the component, a name or a function of a module.
        parameters: `transload.pipelines.Parameter`, or texts: ``lr:float:1e-4:1e-1:log``, ``layers:int:1:5``,
            ``solver:choice:adam,sgd``.
        objective: name of the result.
        tracker_base: where trials report.
        minimize: make it small, or (False) large.
        name: of the experiment.
        curve: the result is a learning curve (`TransloadCurveMetric`); early stopping needs one.
        constants: arguments that are the same in all trials.
        metrics: more metrics to record.
        runner_options: more arguments of `TransloadRunner`: ``scheduler``, ``cfg`` …

    Raises:
        SpecError: if the search does not fit the component, by name.
        ConfigError: for a wrong option.
    """
    space = search_space(parameters, component)
    metric = (TransloadCurveMetric if curve else TransloadMetric)(objective, lower_is_better=minimize)
    runner = TransloadRunner(str(tracker_base), component, constants, **runner_options)
    experiment = Experiment(
        space, name=name, metrics=[metric, *metrics], optimization_config=optimization(metric, minimize), runner=runner
    )
    runner.check(experiment)
    return experiment


def run_experiment(
    experiment: Experiment | None = None,
    trials: int = 20,
    parallel: int = 1,
    *,
    generation_strategy: GenerationStrategy | None = None,
    seed: int | None = None,
    early_stopping: BaseEarlyStoppingStrategy | None = None,
    snapshot: str | os.PathLike[str] | None = None,
    tolerated_failure_rate: float = 0.5,
    timeout_hours: float | None = None,
    keep_running: bool | None = None,
    progress: bool | None = None,
    db_settings: DBSettings | None = None,
    options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run an experiment until it has that many trials, and return the best.

    With a snapshot, the experiment is stored before each submit, and after each change (see `Keeper`). A process that
    was killed is followed by another with the same snapshot: running trials are attached to again, none is started
    twice.

    Args:
        experiment: see `make_experiment`; its runner must be a `TransloadRunner`. None: the snapshot's.
        trials: how many in all, those of earlier runs included.
        parallel: how many at once.
        generation_strategy: what proposes trials; default: Ax's choice, Bayesian optimisation.
        seed: of the default strategy's first trials.
        early_stopping: ends trials that do badly; their jobs are cancelled. Needs a curve metric.
        snapshot: file to store the experiment in; if it exists, the experiment in it goes on, and a given
            ``experiment`` must be the same search. One process at a time runs it.
        tolerated_failure_rate: share of trials that may fail, at least 0 and below 1.
        timeout_hours: give up after that long; what runs is cancelled.
        keep_running: leave jobs running when this ends early; None: as the runner's ``on_kill`` says.
        progress: show a progress bar on stderr; None: if that is a terminal.
        db_settings: Ax's SQL storage, used besides.
        options: more of ``ax.orchestration.orchestrator.OrchestratorOptions``.

    Raises:
        ConfigError: if there is no experiment, or the snapshot is of another one, or somebody runs it already.
        SpecError: if the search space does not fit the component; nothing is started.
        ax.exceptions.core.AxError: if too many trials fail, among others; no job is left behind.
    """
    if isinstance(trials, bool) or trials < 1 or isinstance(parallel, bool) or parallel < 1:
        raise ConfigError(f"trials={trials!r}, parallel={parallel!r}: must be 1 or more")
    settings = _options(parallel, tolerated_failure_rate, early_stopping, options)
    kept = Snapshot(snapshot) if snapshot is not None else None
    if experiment is None and (kept is None or not kept.exists()):
        where = f"{kept.path} does not exist" if kept is not None else "give one, or a snapshot"
        raise ConfigError(f"there is no experiment to run: {where}")
    with kept.locked() if kept is not None else nullcontext():
        experiment, generation_strategy = _resume(experiment, generation_strategy, kept)
        runner = _checked_runner(experiment, stored=kept is not None)
        made = generation_strategy or strategy(seed=seed)
        with Progress(experiment, trials, progress) as shown:
            keeper = Keeper(kept, experiment, made, on_change=shown.update)
            with one_thread(), _kept(runner, experiment, keeper, keep_running):
                orchestrator = TransloadOrchestrator(
                    experiment=experiment,
                    generation_strategy=made,
                    options=settings,
                    db_settings=db_settings,
                    on_change=keeper.note,
                    next_idle=keeper.due,
                )
                missing = trials - (len(orchestrator.trials) - len(orchestrator.candidate_trials))
                orchestrator.run_n_trials(max(0, missing), timeout_hours=timeout_hours, idle_callback=keeper.idle)
    return outcome(experiment)


@contextmanager
def _kept(runner: TransloadRunner, experiment: Experiment, keeper: Keeper, keep_running: bool | None) -> Iterator[None]:
    """Have what runs within it stored; leave no job behind, not even an earlier process's, however it ends."""
    runner.trials.on_record, runner.trials.on_logs = keeper.before_submit, keeper.touch
    try:
        runner.follow(experiment.trials.values())
        yield
    finally:
        runner.trials.on_record = runner.trials.on_logs = None
        runner.follow(experiment.trials.values(), candidates=True)
        runner.close(cancel=None if keep_running is None else not keep_running)
        if experiment.trials:
            keeper.close()


def _checked_runner(experiment: Experiment, *, stored: bool) -> TransloadRunner:
    """Return the runner of an experiment that can be run, and stored if it is to be."""
    runner = experiment.runner
    if not isinstance(runner, TransloadRunner):
        raise SpecError(f"experiment.runner: must be a TransloadRunner, not {type(runner).__name__}")
    runner.check(experiment)
    if stored:
        component_path(runner.component)  # refused now, not when the first trial is stored
    return runner


def _resume(
    experiment: Experiment | None, strategy_given: GenerationStrategy | None, kept: Snapshot | None
) -> tuple[Experiment, GenerationStrategy | None]:
    if kept is None or not kept.exists():
        assert experiment is not None
        return experiment, strategy_given
    stored, stored_strategy, _ = kept.load()
    if experiment is not None:
        _compare(experiment, stored, kept)
        _lend_secrets(experiment, stored)
    logger.info("going on with experiment %s from %s: %d trials", stored.name, kept.path, len(stored.trials))
    return stored, stored_strategy or strategy_given


def _compare(given: Experiment, stored: Experiment, kept: Snapshot) -> None:
    """Refuse to go on with what is another search than the one asked for."""
    differs = []
    if given.name != stored.name:
        differs.append(f"name {given.name!r}")
    if given.search_space != stored.search_space:
        differs.append("search space")
    if given.optimization_config != stored.optimization_config:
        differs.append("objective")
    mine, its = given.runner, stored.runner
    if isinstance(mine, TransloadRunner) and isinstance(its, TransloadRunner):
        if component_path(mine.component) != its.component:
            differs.append("component")
        if mine.component_const_params != its.component_const_params:
            differs.append("constant arguments")
        if mine.scheduler != its.scheduler:
            differs.append(f"scheduler ({its.scheduler}, not {mine.scheduler})")
        if mine.tracker_base != its.tracker_base:
            differs.append(f"tracker base ({its.tracker_base}, not {mine.tracker_base})")
    if differs:
        raise ConfigError(
            f"{kept.path} holds experiment {stored.name!r} with another {', '.join(differs)}: give it another name or "
            "file, or leave its definition out to go on with it"
        )


def _lend_secrets(given: Experiment, stored: Experiment) -> None:
    """Give the stored runner what is not stored: run options whose name looks secret."""
    mine, its = given.runner, stored.runner
    if isinstance(mine, TransloadRunner) and isinstance(its, TransloadRunner):
        its.here.secrets.update(mine.here.secrets)


def _options(
    parallel: int,
    tolerated: float,
    early_stopping: BaseEarlyStoppingStrategy | None,
    more: Mapping[str, Any] | None,
) -> OrchestratorOptions:
    given: dict[str, Any] = {
        "max_pending_trials": parallel,
        "tolerated_trial_failure_rate": tolerated,
        "early_stopping_strategy": early_stopping,
        "min_seconds_before_poll": 0.0,
        "logging_level": logging.WARNING,
        **(more or {}),
    }
    try:
        return OrchestratorOptions(**given)
    except TypeError as exc:
        raise ConfigError(f"options: {exc}") from exc


def outcome(experiment: Experiment) -> Outcome:
    """Return the best of the completed trials of an experiment with one objective."""
    best: tuple[float, int] | None = None
    config = experiment.optimization_config
    assert config is not None
    name, sign = config.objective.metric_names[0], 1.0 if config.objective.minimize else -1.0
    for index, value in objective_values(experiment, name).items():
        if best is None or (sign * value, index) < best:
            best = (sign * value, index)
    if best is None:
        return Outcome(experiment, None, {}, None)
    arms = experiment.trials[best[1]].arms
    return Outcome(experiment, best[1], dict(arms[0].parameters) if len(arms) == 1 else {}, sign * best[0])


def objective_values(experiment: Experiment, name: str) -> dict[int, float]:
    """Return trial index → (latest) value of a metric, of the trials that completed."""
    frame = experiment.lookup_data().df
    if frame.empty:
        return {}
    frame = frame[frame["metric_name"] == name]
    if "step" in frame.columns:
        frame = frame.sort_values("step")
    found: dict[int, float] = {}
    for index, mean in zip(frame["trial_index"], frame["mean"], strict=True):
        if experiment.trials[int(index)].status.is_completed and mean == mean:
            found[int(index)] = float(mean)
    return found
