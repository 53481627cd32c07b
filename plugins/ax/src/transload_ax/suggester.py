"""Ax as a suggester of core's searches: proposes trials, whoever runs them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from transload.errors import SpecError
from transload_ax.threads import one_thread
from transload_search import Search, SearchTrial

SCHEMA: Final = 1


class AxSuggester:
    """Proposes trials by Bayesian optimisation, after some quasi-random ones. Ax is imported when it is first asked.

    Args:
        search: the search.
    """

    def __init__(self, search: Search) -> None:
        self._search = search
        self._observed: dict[int, float | None] = {}
        self._made: Any = None

    def suggest(self, count: int = 1) -> list[SearchTrial]:
        """Return new trials, at most as many as the search has left; fewer if the model wants to see results first."""
        from ax.exceptions.core import DataRequiredError
        from ax.exceptions.generation_strategy import MaxParallelismReachedException

        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise SpecError(f"count={count!r}: must be an int, 0 or more")
        experiment, strategy = self._ax()
        made: list[SearchTrial] = []
        while len(made) < count and len(experiment.trials) < self._search.trials:
            try:
                with one_thread():
                    runs = strategy.gen(experiment=experiment, num_trials=1, n=1)
            except (DataRequiredError, MaxParallelismReachedException):
                break
            trial = experiment.new_trial(generator_run=runs[0][0])
            trial.mark_running(no_runner_required=True)
            made.append(SearchTrial(trial.index, self._parameters(trial)))
        return made

    def observe(self, index: int, value: float | None) -> None:
        """Take the objective of a trial; None or NaN: it failed. A second value replaces the first."""
        experiment, _ = self._ax()
        if index not in experiment.trials:
            raise SpecError(f"trial {index!r} was not suggested; suggested are 0 to {len(experiment.trials) - 1}")
        number = None if value is None or not math.isfinite(value) else float(value)
        self._observed[index] = number
        trial = experiment.trials[index]
        if number is None:
            trial.mark_failed(unsafe=True)
            return
        self._attach(trial, number)
        trial.mark_completed(unsafe=True)

    def best(self) -> tuple[SearchTrial, float] | None:
        """Return the best trial so far; the earlier one of two equals."""
        sign = 1.0 if self._search.objective.minimize else -1.0
        known = [(sign * value, index) for index, value in self._observed.items() if value is not None]
        if not known:
            return None
        value, index = min(known)
        experiment, _ = self._ax()
        return SearchTrial(index, self._parameters(experiment.trials[index])), sign * value

    def state(self) -> dict[str, Any]:
        """Return everything that it knows as JSON values."""
        if self._made is None:
            return {"schema": SCHEMA, "suggester": "ax", "observed": {}, "experiment": None, "strategy": None}
        import json

        from transload_ax.encoding import Encoder

        encoder = Encoder()
        experiment, strategy = self._made
        stored, plan = json.loads(encoder.experiment(experiment)), json.loads(encoder.strategy(strategy)[0])
        del plan["generator_runs"]  # they are in the trials
        for trial in list(stored["trials"].values())[:-1]:
            # only the last one is gone on from
            trial["generator_run"].update(dict.fromkeys(_DISPENSABLE))
        return {
            "schema": SCHEMA,
            "suggester": "ax",
            "observed": {str(index): value for index, value in sorted(self._observed.items())},
            "experiment": stored,
            "strategy": plan,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state.

        Raises:
            SpecError: if it is the state of something else.
        """
        import copy

        try:
            if state["suggester"] != "ax" or state["schema"] > SCHEMA:
                raise SpecError(f"state of a search: not of the ax suggester, schema {SCHEMA}")
            observed = {int(index): value for index, value in state["observed"].items()}
            if state["experiment"] is None:
                self._made = None
            else:
                from transload_ax.storage import decode_experiment

                stored, plan = copy.deepcopy(state["experiment"]), copy.deepcopy(state["strategy"])
                plan["generator_runs"] = [copy.deepcopy(each["generator_run"]) for each in stored["trials"].values()]
                self._made = decode_experiment(stored, plan)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            if isinstance(exc, SpecError):
                raise
            raise SpecError(f"state of a search: not one of ours: {exc!r}") from exc
        self._observed = observed

    # -- inside

    def _ax(self) -> tuple[Any, Any]:
        if self._made is None:
            from ax.core.experiment import Experiment
            from ax.core.metric import Metric

            from transload_ax.spaces import optimization, search_space, strategy

            logging.getLogger("ax").setLevel(logging.WARNING)
            search = self._search
            metric = Metric(_METRIC, lower_is_better=search.objective.minimize)
            experiment = Experiment(
                search_space(search.parameters),
                name="search",
                metrics=[metric],
                optimization_config=optimization(metric, search.objective.minimize),
            )
            self._made = experiment, strategy(seed=search.seed)
        return self._made[0], self._made[1]

    def _parameters(self, trial: Any) -> dict[str, Any]:
        return {name: trial.arm.parameters[name] for name in (each.name for each in self._search.parameters)}

    def _attach(self, trial: Any, value: float) -> None:
        import pandas as pd
        from ax.core.data import Data

        row = {
            "arm_name": trial.arm.name,
            "trial_index": trial.index,
            "metric_name": _METRIC,
            "metric_signature": _METRIC,
            "mean": value,
            "sem": math.nan,
        }
        trial.experiment.attach_data(Data(df=pd.DataFrame.from_records([row])))


_METRIC: Final = "objective"

_DISPENSABLE: Final = (
    "optimization_config",
    "search_space",
    "model_predictions",
    "best_arm_predictions",
    "generator_kwargs",
    "adapter_kwargs",
    "gen_metadata",
)
"""What Ax stores with a proposed trial, besides its parameters, to tell how it came about."""
