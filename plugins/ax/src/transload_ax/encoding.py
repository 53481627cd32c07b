"""Ax's JSON of an experiment as text, made anew only where something has changed.

Ax encodes the whole experiment each time, once for itself and once inside of the generation strategy; the data alone
takes milliseconds for each trial. What is written here is read by Ax's own decoder.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ax.core.base_trial import BaseTrial
from ax.core.data import Data
from ax.core.experiment import Experiment
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.storage.json_store.registry import CORE_ENCODER_REGISTRY
from ax.storage.utils import data_to_data_by_trial

from transload_ax.storage import encode, register

_PLAIN: Final = (type(None), bool, int, float, str, dict)

_NO_DATA: Final = Data()

_COLUMNS: Final = {
    "trial_index": "trial_index",
    "arm_name": "arm_name",
    "metric_name": "metric_name",
    "metric_signature": "metric_signature",
    "mean": "mean",
    "sem": "se",
    "step": "step",
}
"""Column of Ax's table → attribute of its rows."""


def json_object(values: Mapping[str, Any], **texts: str) -> str:
    """Return a JSON object of values, and of members that are JSON texts already."""
    members = [f"{json.dumps(str(name))}: {json.dumps(value)}" for name, value in values.items()]
    return "{" + ", ".join([*members, *(f"{json.dumps(name)}: {text}" for name, text in texts.items())]) + "}"


class Encoder:
    """Encodes experiments and strategies again and again; remembers the texts of parts that stay as they were."""

    def __init__(self) -> None:
        register()
        self._trials: dict[int, tuple[Any, str]] = {}
        self._runs: dict[int, tuple[Any, str]] = {}
        self._data: tuple[Data | None, str] = (None, "{}")

    def experiment(self, experiment: Experiment) -> str:
        """Return an experiment as JSON text."""
        # without its data, which Ax would turn into tables
        light = copy.copy(experiment)
        light.data = _NO_DATA
        shallow = CORE_ENCODER_REGISTRY[type(experiment)](light)
        trials, _ = shallow.pop("trials"), shallow.pop("data_by_trial")
        texts = {str(index): self.trial(trial) for index, trial in trials.items()}
        body = {name: encode(value) for name, value in shallow.items()}
        return json_object(body, trials=json_object({}, **texts), data_by_trial=self._table(experiment.data))

    def strategy(self, strategy: GenerationStrategy, runs_from: int = 0) -> tuple[str, int]:
        """Return a generation strategy as JSON text, without its experiment, and how many generator runs it has.

        Args:
            strategy: the strategy.
            runs_from: how many of its generator runs to leave out, from the first one on.
        """
        shallow = CORE_ENCODER_REGISTRY[type(strategy)](strategy)
        runs = shallow.pop("generator_runs")
        body = {name: encode(value) for name, value in shallow.items() if name != "experiment"}
        texts = [self._run(run) for run in runs[runs_from:]]
        return json_object({**body, "experiment": None}, generator_runs=f"[{', '.join(texts)}]"), len(runs)

    def trial(self, trial: BaseTrial) -> str:
        """Return a trial as JSON text."""
        shallow = CORE_ENCODER_REGISTRY[type(trial)](trial)
        mark = {name: _mark(value) for name, value in shallow.items()}
        known = self._trials.get(trial.index)
        if known is not None and known[0] == mark and not trial.status.is_candidate:
            return known[1]
        text = json.dumps(encode(trial))
        self._trials[trial.index] = mark, text
        return text

    def _run(self, run: Any) -> str:
        known = self._runs.get(id(run))
        if known is None or known[0] is not run:
            known = self._runs[id(run)] = run, json.dumps(encode(run))
        return known[1]

    def _table(self, data: Data) -> str:
        if self._data[0] is not data:
            self._data = data, _data_by_trial(data)
        return self._data[1]


class _Same:
    """An object that is equal to itself only. Holding it keeps another one from getting its address."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.thing is self.thing

    __hash__ = None  # type: ignore[assignment]


def _mark(value: Any) -> Any:
    """Return what is equal for a value as long as it is encoded alike: Ax's objects in a trial are not changed."""
    if isinstance(value, dict):
        return repr(value)
    if isinstance(value, list):
        return [_Same(each) for each in value]
    return value if isinstance(value, _PLAIN) else _Same(value)


def _data_by_trial(data: Data) -> str:
    """Return the data as Ax stores it: trial → a table, as JSON inside of JSON."""
    rows = getattr(data, "_data_rows", None)
    if rows is None or any(_is_special(row) for row in rows):
        return json.dumps(encode(data_to_data_by_trial(data)))
    by_trial: dict[int, list[Any]] = {}
    for row in rows:
        by_trial.setdefault(int(row.trial_index), []).append(row)
    return json_object({str(index): _one(each) for index, each in by_trial.items()})


def _is_special(row: Any) -> bool:
    """Tell whether a row has what our own metrics never report."""
    return any(getattr(row, name, None) is not None for name in ("start_time", "end_time", "n"))


def _one(rows: Iterable[Any]) -> dict[str, Any]:
    rows = list(rows)
    steps = any(row.step is not None for row in rows)
    table = {
        column: {str(place): _cell(getattr(row, attribute)) for place, row in enumerate(rows)}
        for column, attribute in _COLUMNS.items()
        if column != "step" or steps
    }
    frame = {"__type": "DataFrame", "value": json.dumps(table)}
    return {"__type": "OrderedDict", "value": [[0, {"df": frame, "__type": "Data"}]]}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, int) or math.isfinite(number) else None
