"""Let Ax suggest the trials of searches, whoever runs them."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from transload.errors import SpecError
from transload_ax.threads import one_thread, seeded
from transload_search import Search, SearchTrial, Values

SCHEMA: Final = 3


class AxSuggester:
    """Proposes trials by Bayesian optimisation, after some quasi-random ones.

    Ax is imported when it is first asked.

    Args:
        search: the search.
    """

    method: ClassVar[Literal["fast", "quality", "random_search"]] = "fast"

    def __init__(self, search: Search) -> None:
        self._search = search
        self._made: Any = None

    def check(self) -> None:
        """Refuse a space or an aim that Ax does not take.

        Raises:
            SpecError: for choices of several types, bounds too close together, or a bound on an
                objective.
        """
        self._ax()

    def suggest(self, count: int = 1) -> list[SearchTrial]:
        """Return new trials, at most as many as the search has left.

        They are fewer if the model wants to see results first.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise SpecError(f"count={count!r}: must be an int, 0 or more")
        experiment, strategy = self._ax()
        from ax.exceptions.core import DataRequiredError, SearchSpaceExhausted
        from ax.exceptions.generation_strategy import MaxParallelismReachedException

        made: list[SearchTrial] = []
        left = min(self._search.trials, self._points()) - len(experiment.trials)
        while len(made) < min(count, left):
            try:
                with one_thread(), seeded(self._search.seed + len(experiment.trials)):
                    runs = strategy.gen(experiment=experiment, num_trials=1, n=1)
            except (DataRequiredError, MaxParallelismReachedException, SearchSpaceExhausted):
                break
            trial = experiment.new_trial(generator_run=runs[0][0])
            trial.mark_running(no_runner_required=True)
            made.append(SearchTrial(trial.index, self._parameters(trial)))
        return made

    def observe(self, index: int, values: Values | None) -> None:
        """Take the value of a trial, or None if it failed."""
        experiment, _ = self._ax()
        if index not in experiment.trials:
            raise SpecError(
                f"trial {index!r} was not suggested; suggested are 0 to "
                f"{len(experiment.trials) - 1}"
            )
        trial = experiment.trials[index]
        if values is None:
            trial.mark_failed(unsafe=True)
            return
        self._attach(trial, values)
        if set(values) >= set(self._search.results):
            trial.mark_completed(unsafe=True)
        else:
            trial.mark_early_stopped(unsafe=True)

    def state(self) -> dict[str, Any]:
        """Return everything that it knows, as Ax's own storage writes it in JSON."""
        stored = None
        if self._made is not None:
            from ax.storage.json_store.encoder import object_to_json

            _, strategy = self._made
            stored = object_to_json(strategy)
        return {"schema": SCHEMA, "suggester": "ax", "strategy": stored}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state.

        Raises:
            SpecError: if it is the state of something else.
        """
        if state.get("suggester") != "ax" or state.get("schema") != SCHEMA:
            raise SpecError(f"state of a search: not of the ax suggester, schema {SCHEMA}")
        self._made = None
        if state.get("strategy") is None:
            return
        _quiet()
        from ax.storage.json_store.decoder import object_from_json

        try:
            strategy = object_from_json(copy.deepcopy(state["strategy"]))
            self._made = strategy.experiment, strategy
        except Exception as exc:  # Ax names no error for it
            raise SpecError(f"state of a search: Ax cannot read it: {exc!r}") from exc

    # -- inside

    def _ax(self) -> tuple[Any, Any]:
        if self._made is None:
            _quiet()
            from ax.core.experiment import Experiment

            from transload_ax.spaces import metrics_of, optimization, search_space, strategy

            search = self._search
            metrics = metrics_of(search.objectives, search.constraints)
            experiment = Experiment(
                search_space(search.parameters, search.component),
                name="search",
                metrics=list(metrics.values()),
                optimization_config=optimization(search.objectives, search.constraints, metrics),
            )
            proposer = strategy(self.method, seed=search.seed)
            proposer.experiment = experiment  # which is stored with it
            self._made = experiment, proposer
        return self._made[0], self._made[1]

    def _points(self) -> float:
        """Return how many points the space has.

        Ax proposes no point twice, and looks for another one for minutes.
        """
        points = 1.0
        for each in self._search.parameters:
            if each.kind == "choice":
                points *= len(each.values)
            elif each.kind == "int":
                assert each.low is not None and each.high is not None
                points *= each.high - each.low + 1
            elif each.low != each.high:
                return math.inf
        return points

    def _parameters(self, trial: Any) -> dict[str, Any]:
        return {
            name: trial.arm.parameters[name]
            for name in (each.name for each in self._search.parameters)
        }

    def _attach(self, trial: Any, values: Values) -> None:
        import pandas as pd
        from ax.core.data import Data

        about = {"arm_name": trial.arm.name, "trial_index": trial.index, "sem": math.nan}
        rows = [
            {**about, "metric_name": name, "metric_signature": name, "mean": mean}
            for name, mean in values.items()
        ]
        trial.experiment.attach_data(Data(df=pd.DataFrame.from_records(rows)))


class AxQualitySuggester(AxSuggester):
    """Does what `AxSuggester` does, with models that take longer and know more."""

    method = "quality"


class AxSobolSuggester(AxSuggester):
    """Proposes quasi-random trials only, which fill the space more evenly than those at random."""

    method = "random_search"


def _quiet() -> None:
    """Have Ax and PyTorch warn of nothing that users of a search could not change.

    What lies between them is silenced, too.
    """
    # Ax sets the levels of its loggers when they are made, and tells at once that it has SQL
    # storage
    logging.getLogger("ax.storage.sqa_store.with_db_settings_base").addFilter(
        lambda record: record.levelno > logging.INFO
    )
    logging.getLogger("ax").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(ax|botorch|gpytorch|linear_operator|pyro|torch)\.")
