"""Metrics that read what trials reported through the result tracker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pandas as pd
from ax.core.arm import Arm
from ax.core.base_trial import BaseTrial
from ax.core.batch_trial import BatchTrial
from ax.core.data import MAP_KEY, Data
from ax.core.map_metric import MapMetric
from ax.core.metric import Metric, MetricFetchE, MetricFetchResult
from ax.utils.common.result import Err, Ok

from transload.errors import TransloadError
from transload.runner import AppResults, NoSuchResult
from transload.runtime.tracking import FsspecResultTracker, app_folder
from transload.specs import AppState, parse_app_handle
from transload_ax.trials import BASE, HANDLE

Results = Mapping[str, Any]


class MetricMissing(TransloadError, LookupError):
    """A trial did not report what a metric reads, or reported no number."""


class TransloadMetric(Metric):
    """Reads ``name``, or ``name/mean`` and ``name/sem``, from what a trial reported.

    That is looked for under the trial's index in the experiment's tracker base, then in the results of the trial's app
    as `AppResults.value` does: a program needs to know nothing of trials. A value that is missing, NaN, infinite or no
    number is an error with the place and what is there; Ax then marks the trial ABANDONED if it is an objective.

    Args:
        name: name of the result.
        lower_is_better: True if small is good; kept when stored.
        properties: see ``ax.core.metric.Metric``.
        signature_override: see ``ax.core.metric.Metric``.
    """

    def fetch_trial_data(self, trial: BaseTrial, **kwargs: Any) -> MetricFetchResult:
        """Return the metric's value for each arm of a trial."""
        try:
            rows = []
            for arm, reported in _arms(trial):
                mean, sem = read_value(*reported.of(self.name), self.name)
                rows.append(_row(self, trial, arm, mean, sem))
            return Ok(Data(df=pd.DataFrame.from_records(rows)))
        except Exception as exc:
            return Err(MetricFetchE(message=f"trial {trial.index}: {exc}", exception=exc))


class TransloadCurveMetric(MapMetric):
    """Reads a learning curve: the results ``name/<step>`` of a trial, while it runs. Early stopping works on it.

    A trial that reports only the latest value, as ``name``, gives one point for each look, at the step that the result
    ``step_name`` says (0 if there is none). Points that are NaN or infinite are left out.

    Args:
        name: name of the result.
        lower_is_better: True if small is good; kept when stored. Early stopping needs it.
        properties: see ``ax.core.metric.Metric``.
        signature_override: see ``ax.core.metric.Metric``.
        step_name: name of the result that says how far a trial is.
    """

    def __init__(
        self,
        name: str,
        lower_is_better: bool | None = None,
        properties: dict[str, Any] | None = None,
        signature_override: str | None = None,
        step_name: str = "step",
    ) -> None:
        super().__init__(name, lower_is_better, properties, signature_override)
        self.step_name = step_name

    @classmethod
    def is_available_while_running(cls) -> bool:
        """True: a curve grows while its trial runs."""
        return True

    def fetch_trial_data(self, trial: BaseTrial, **kwargs: Any) -> MetricFetchResult:
        """Return the curve of each arm of a trial, as far as it goes."""
        try:
            rows = []
            for arm, reported in _arms(trial):
                curve = read_curve(*reported.of(self.name), self.name, self.step_name)
                rows += [{**_row(self, trial, arm, value, math.nan), MAP_KEY: float(step)} for step, value in curve]
            return Ok(Data(df=pd.DataFrame.from_records(rows)))
        except Exception as exc:
            return Err(MetricFetchE(message=f"trial {trial.index}: {exc}", exception=exc))


def read_value(results: Results, place: str, name: str) -> tuple[float, float]:
    """Return mean and standard error (NaN if unknown) of a result.

    Raises:
        MetricMissing: if it is not there or no finite number.
    """
    where = name if name in results else f"{name}/mean"
    if where not in results:
        shown = ", ".join(map(repr, list(results)[:10])) or "nothing"
        raise MetricMissing(f"no result {name!r} in {place}: there is {shown}")
    mean = _number(results[where], where, place)
    if not math.isfinite(mean):
        raise MetricMissing(f"result {where!r} in {place} is {mean}: must be a finite number")
    sem = results.get(f"{name}/sem") if where != name else None
    return mean, math.nan if sem is None else _number(sem, f"{name}/sem", place)


def read_curve(results: Results, place: str, name: str, step_name: str) -> list[tuple[float, float]]:
    """Return the points of a curve, by growing step.

    Raises:
        MetricMissing: if there is none with a finite number.
    """
    points: dict[float, float] = {}
    for full, value in results.items():
        head, _, step = full.rpartition("/")
        if head == name and _is_number(step):
            points[float(step)] = _number(value, full, place)
    if not points and name in results:
        points[_number(results.get(step_name, 0), step_name, place)] = _number(results[name], name, place)
    curve = sorted((step, value) for step, value in points.items() if math.isfinite(value))
    if not curve:
        shown = ", ".join(map(repr, list(results)[:10])) or "nothing"
        raise MetricMissing(f"no finite result {name + '/<step>'!r} or {name!r} in {place}: there is {shown}")
    return curve


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(value: Any, name: str, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MetricMissing(f"result {name!r} in {place} is {value!r}: must be a number")
    return float(value)


class Reported:
    """What the app of a trial, or of one arm of a batch trial, reported.

    Args:
        index: the trial.
        metadata: its run metadata.
        arm: name of the arm; ``""``: the trial has one app.

    Raises:
        MetricMissing: if it was not run by a `TransloadRunner`.
    """

    def __init__(self, index: int, metadata: Mapping[str, Any], arm: str = "") -> None:
        base = metadata.get(BASE)
        if not isinstance(base, str):
            raise MetricMissing(f"trial {index}: its run metadata has no {BASE!r}: it was not run by a TransloadRunner")
        found = metadata.get(HANDLE)
        self.handle = str(found.get(arm, "")) if isinstance(found, Mapping) else str(found or "")
        self.base, self.key = f"{base.rstrip('/')}/{arm}" if arm else base, str(index)

    def of(self, name: str) -> tuple[Results, str]:
        """Return the results of the key that has a result of that name, its mean or its curve; and where they are.

        Raises:
            MetricMissing: if no key has it, or several that the app's own results do not tell apart.
        """
        shared, place = FsspecResultTracker(self.base).get(self.key), f"key {self.key!r} of {self.base}"
        if _has(shared, name) or not self.handle:
            return shared, place
        folder = app_folder(self.base, parse_app_handle(self.handle).app_id)
        own = FsspecResultTracker(folder).to_dict()
        having: dict[str, dict[str, Any]] = {key: {name: 0} for key, values in own.items() if _has(values, name)}
        try:
            key = AppResults(self.handle, AppState.UNKNOWN, having, looked_in=[folder]).key_of(name)
        except NoSuchResult as exc:
            there = {f"{self.key} (of all trials)": shared, **own}
            shown = "; ".join(f"{key}: {', '.join(list(values)[:10])}" for key, values in there.items() if values)
            problem = str(exc) if having else f"no result {name!r} in {place} or in {folder}"
            raise MetricMissing(f"{problem}; there is {shown or 'nothing'}") from exc
        return own[key], f"key {key!r} of {folder}"


def _has(results: Results, name: str) -> bool:
    return name in results or any(each.startswith(f"{name}/") for each in results)


def _arms(trial: BaseTrial) -> Iterable[tuple[Arm, Reported]]:
    """Yield the arms of a trial that have not been given up, each with what it reported."""
    batch = isinstance(trial, BatchTrial)
    gone = {each.name for each in trial.abandoned_arms} if isinstance(trial, BatchTrial) else set()
    for arm in trial.arms:
        if arm.name not in gone:
            yield arm, Reported(trial.index, trial.run_metadata, arm.name if batch else "")


def _row(metric: Metric, trial: BaseTrial, arm: Arm, mean: float, sem: float) -> dict[str, Any]:
    return {
        "arm_name": arm.name,
        "trial_index": trial.index,
        "metric_name": metric.name,
        "metric_signature": metric.signature,
        "mean": mean,
        "sem": sem,
    }


METRICS: Final = (TransloadMetric, TransloadCurveMetric)
