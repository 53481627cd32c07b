"""Make an experiment for a whole search, run it to the end, and go on after a crash."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ax.core.experiment import Experiment
from ax.core.metric import Metric
from ax.early_stopping.strategies import BaseEarlyStoppingStrategy
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.orchestration.orchestrator_options import OrchestratorOptions

from transload.errors import ConfigError, SpecError
from transload_ax.arguments import component_path
from transload_ax.jobs import exit_on_sigterm
from transload_ax.metric import TransloadCurveMetric, TransloadMetric
from transload_ax.options import RunnerOptions
from transload_ax.orchestrator import TransloadOrchestrator
from transload_ax.resume import resume
from transload_ax.runner import TransloadRunner
from transload_ax.snapshot import Keeper, Snapshot
from transload_ax.spaces import metrics_of, optimization, search_space, strategy
from transload_ax.storage import is_stored
from transload_ax.threads import one_thread, seeded
from transload_search import Constraint, Objective, Parameter

if TYPE_CHECKING:
    from ax.storage.sqa_store.structs import DBSettings


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Args:
        experiment: with all trials and data.
        trial: index of the best trial, or None if none completed, or if there is not just one
            objective.
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
    objective: str | Objective | Sequence[Objective],
    tracker_base: str | os.PathLike[str] | None = None,
    *,
    minimize: bool = True,
    name: str = "search",
    curve: bool = False,
    constants: Mapping[str, Any] | None = None,
    constraints: Sequence[Constraint | str] = (),
    metrics: Sequence[Metric] = (),
    **runner_options: Unpack[RunnerOptions],
) -> Experiment:
    """Return an experiment that searches a component's arguments for the best result.

    Args:
        component: the component, a name or a function of a module.
        parameters: `transload_search.Parameter`, or texts such as ``lr:float:1e-4:1e-1:log``,
            ``layers:int:1:5``, ``solver:choice:adam,sgd``.
        objective: name of the result, or `transload_search.Objective`, one or several.
        tracker_base: where trials report, see `TransloadRunner`. A folder is made absolute.
        minimize: make a result that is given by its name small, or (False) large.
        name: of the experiment.
        curve: the result is a learning curve (`TransloadCurveMetric`). Early stopping needs one.
        constants: arguments that are the same in all trials.
        constraints: bounds on other results, as ``latency<=20`` or `transload_search.Constraint`.
        metrics: more metrics to record.
        runner_options: more arguments of `TransloadRunner`, such as ``scheduler``, ``cfg``,
            ``patience`` …

    Raises:
        SpecError: if the search does not fit the component, by name.
        ConfigError: for a wrong option.
    """
    goals = _objectives(objective, minimize)
    bounds = [_constraint(each) for each in constraints]
    kind: type[Metric] = TransloadMetric
    if curve:
        kind = TransloadCurveMetric
    measured = metrics_of(goals, bounds, kind)
    runner = TransloadRunner(_absolute(tracker_base), component, constants, **runner_options)
    experiment = Experiment(
        search_space(parameters, runner.resolve_component()),
        name=name,
        metrics=[*measured.values(), *metrics],
        optimization_config=optimization(goals, bounds, measured),
        runner=runner,
    )
    runner.check(experiment)
    return experiment


def _objectives(
    objective: str | Objective | Sequence[Objective], minimize: bool
) -> list[Objective]:
    """Return what is searched for, as a list."""
    if isinstance(objective, str):
        return [Objective(objective, minimize)]
    if isinstance(objective, Objective):
        return [objective]
    return list(objective)


def _constraint(given: Constraint | str) -> Constraint:
    if isinstance(given, str):
        return Constraint.parse(given)
    return given


def _absolute(tracker_base: str | os.PathLike[str] | None) -> str | None:
    """Return a tracker base, of which a folder is made absolute."""
    if tracker_base is None:
        return None
    base = str(tracker_base)
    if not base or "://" in base:
        return base
    return str(Path(base).expanduser().absolute())


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
    db_settings: DBSettings | None = None,
    options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run an experiment until it has that many trials, and return the best.

    With a snapshot, the experiment is stored before each submit, and after each change (see
    `Keeper`). After a kill, another process with the same snapshot attaches to the running trials
    again, and starts none twice.

    Ctrl-C ends the jobs too, unless ``keep_running``. After SIGTERM, which does not say who sent
    it, they go on.

    Args:
        experiment: see `make_experiment`. Its runner must be a `TransloadRunner`. With None it is
            the snapshot's.
        trials: how many in all, those of earlier runs included.
        parallel: how many at once.
        generation_strategy: what proposes trials, by default Ax's choice, Bayesian optimisation. A
            stored search goes on with its own.
        seed: of the default strategy's first trials, in a new search, and of what its models draw.
        early_stopping: ends trials that do badly, and cancels their jobs. Needs a curve metric.
        snapshot: file to store the experiment in. If it exists, the experiment in it goes on, and a
            given ``experiment`` must be the same in all but ``namespace``. One process at a time
            runs it.
        tolerated_failure_rate: share of trials that may fail, at least 0 and below 1.
        timeout_hours: hours after which the search gives up and cancels what runs.
        keep_running: leave jobs running when this ends early, or with None as the runner's
            ``on_kill`` says.
        db_settings: Ax's SQL storage, used besides. What is stored there goes on as an
            ``experiment`` and a ``generation_strategy`` that were loaded from it.
        options: more of ``ax.orchestration.orchestrator.OrchestratorOptions``.

    Raises:
        ConfigError: if there is no experiment, or the snapshot is of another one, or somebody runs
            it already.
        SpecError: if the search space does not fit the component. Nothing is started.
        ax.exceptions.core.AxError: if too many trials fail, among others. No job is left behind.
        OSError: if a trial cannot be stored before its submit. Jobs that run go on.
        sqlalchemy.exc.SQLAlchemyError: if Ax cannot store a trial. Jobs that run go on.
    """
    settings = _options(trials, parallel, tolerated_failure_rate, early_stopping, options)
    kept = None
    lock: AbstractContextManager[None] = nullcontext()
    if snapshot is not None:
        kept = Snapshot(snapshot)
        lock = kept.locked()
    with lock:
        experiment, generation_strategy = resume(experiment, generation_strategy, kept)
        runner = _checked_runner(experiment, stored=kept is not None)
        _check_settings(experiment, settings, db_settings)
        made = generation_strategy or strategy(seed=seed)
        keeper = Keeper(kept, experiment, made)
        with (
            exit_on_sigterm(),
            one_thread(),
            seeded(seed),
            _kept(runner, experiment, keeper, keep_running),
        ):
            orchestrator = TransloadOrchestrator(experiment, made, settings, db_settings)
            missing = max(0, trials - len(orchestrator.trials) + len(orchestrator.candidate_trials))
            orchestrator.run_n_trials(
                missing, timeout_hours=timeout_hours, idle_callback=keeper.idle
            )
    return outcome(experiment)


@contextmanager
def _kept(
    runner: TransloadRunner, experiment: Experiment, keeper: Keeper, keep_running: bool | None
) -> Iterator[None]:
    """Have what runs within this context stored.

    If its end was asked for, no job is left, not even an earlier process's. A search that ends
    because it could not be stored leaves its jobs, and the next call reattaches.
    """
    before = runner.trials.keep
    runner.trials.keep = keeper.before_submit
    refused = False
    try:
        runner.follow(experiment.trials.values())
        yield
    except Exception as exc:
        refused = exc is keeper.refusal or type(exc).__module__.startswith("sqlalchemy.")
        raise
    finally:
        runner.trials.keep = before
        runner.follow(experiment.trials.values(), candidates=True)
        cancel = None
        if keep_running is not None:
            cancel = not keep_running and runner.trials.jobs.end_was_asked_for()
        elif refused:
            cancel = False
        runner.close(cancel=cancel)
        if experiment.trials:
            keeper.save()


def _checked_runner(experiment: Experiment, *, stored: bool) -> TransloadRunner:
    """Return the runner of an experiment that can be run, and stored if it is to be.

    What is wrong is refused here, before the experiment is stored with it.
    """
    runner = experiment.runner
    if not isinstance(runner, TransloadRunner):
        raise SpecError(
            f"experiment.runner: must be a TransloadRunner, not {type(runner).__name__}"
        )
    runner.check(experiment)
    runner.check_scheduler()
    if stored:
        component_path(runner.component)  # refused now, not when the first trial is stored
    return runner


def _options(
    trials: int,
    parallel: int,
    tolerated: float,
    early_stopping: BaseEarlyStoppingStrategy | None,
    more: Mapping[str, Any] | None,
) -> OrchestratorOptions:
    for name, count in (("trials", trials), ("parallel", parallel)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"{name}={count!r}: must be an int, 1 or more")
    given: dict[str, Any] = {
        "max_pending_trials": parallel,
        "tolerated_trial_failure_rate": tolerated,
        "early_stopping_strategy": early_stopping,
        "min_seconds_before_poll": 0.0,
        "logging_level": logging.WARNING,
        **(more or {}),
    }
    try:
        made = OrchestratorOptions(**given)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"options: {exc}") from exc
    rate = made.tolerated_trial_failure_rate
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < 1:
        raise ConfigError(
            f"tolerated_failure_rate={rate!r}: must be a share of trials, at least 0 and below 1"
        )
    return made


def _check_settings(
    experiment: Experiment, settings: OrchestratorOptions, db_settings: DBSettings | None
) -> None:
    """Refuse what Ax would refuse in other words, and once the search is under way."""
    curves = any(metric.is_available_while_running() for metric in experiment.metrics.values())
    if settings.early_stopping_strategy is not None and settings.validate_metrics and not curves:
        raise ConfigError(
            f"early_stopping: no metric of experiment {experiment.name!r} is a learning curve "
            "(TransloadCurveMetric; make_experiment(…, curve=True))"
        )
    if (
        db_settings is not None
        and experiment.db_id is None
        and is_stored(experiment.name, db_settings)
    ):
        raise ConfigError(
            f"db_settings: an experiment {experiment.name!r} is stored there already: load it and "
            "its generation "
            "strategy from there to go on with it, or give this one another name"
        )


def outcome(experiment: Experiment) -> Outcome:
    """Return the best of the completed trials of an experiment.

    An experiment that does not have exactly one objective has no best trial.
    """
    best: tuple[float, int] | None = None
    config = experiment.optimization_config
    if config is None or len(config.objective.metric_names) != 1:
        return Outcome(experiment, None, {}, None)
    name = config.objective.metric_names[0]
    sign = -1.0
    if config.objective.minimize:
        sign = 1.0
    for index, value in objective_values(experiment, name).items():
        if best is None or (sign * value, index) < best:
            best = (sign * value, index)
    if best is None:
        return Outcome(experiment, None, {}, None)
    value, index = best
    arms = experiment.trials[index].arms
    parameters: dict[str, Any] = {}
    if len(arms) == 1:
        parameters = dict(arms[0].parameters)
    return Outcome(experiment, index, parameters, sign * value)


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
