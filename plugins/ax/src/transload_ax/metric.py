"""Metrics that read what trials reported through the result tracker."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
from ax.core.base_trial import BaseTrial
from ax.core.batch_trial import BatchTrial
from ax.core.data import MAP_KEY, Data
from ax.core.map_metric import MapMetric
from ax.core.metric import Metric, MetricFetchE, MetricFetchResult
from ax.utils.common.result import Err, Ok

from transload.errors import TransloadError
from transload.pipelines import host_runner
from transload.runner import Cluster, NoSuchResult
from transload.runtime.tracking import FsspecResultTracker
from transload_ax.units import BASE, HANDLE, HOST, RECORD, base_of

Results = Mapping[str, Any]


class MetricMissing(TransloadError, LookupError):
    """A trial did not report what a metric reads, or reported no number."""


class TransloadMetric(Metric):
    """Reads ``name``, or ``name/mean`` and ``name/sem``, from what a trial reported.

    That is looked for under the trial's index in the experiment's tracker base, then in the results
    of the trial's app
    as `AppResults.value` does: a program needs to know nothing of trials. A value that is missing,
    NaN, infinite or no number is an error with the place and what is there; Ax then marks the trial
    ABANDONED if it is an objective.

    Args:
        name: name of the result.
        lower_is_better: True if small is good; kept when stored.
        properties: see ``ax.core.metric.Metric``.
        signature_override: see ``ax.core.metric.Metric``.
    """

    def fetch_trial_data(self, trial: BaseTrial, **kwargs: Any) -> MetricFetchResult:
        """Return the metric's value for each arm of a trial."""
        return _fetch(self, trial, lambda results, place: [read_value(results, place, self.name)])


class TransloadCurveMetric(MapMetric):
    """Reads a learning curve: the results ``name/<step>`` of a trial, while it runs. Early stopping
    works on it.

    A trial that reports only the latest value, as ``name``, gives one point for each look, at the
    step that the result ``step_name`` says (0 if there is none). Points that are NaN or infinite
    are left out.

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
        return _fetch(
            self,
            trial,
            lambda results, place: [
                (value, math.nan, step)
                for step, value in read_curve(results, place, self.name, self.step_name)
            ],
        )


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


def read_curve(
    results: Results, place: str, name: str, step_name: str
) -> list[tuple[float, float]]:
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
        points[_number(results.get(step_name, 0), step_name, place)] = _number(
            results[name], name, place
        )
    curve = sorted((step, value) for step, value in points.items() if math.isfinite(value))
    if not curve:
        shown = ", ".join(map(repr, list(results)[:10])) or "nothing"
        raise MetricMissing(
            f"no finite result {name + '/<step>'!r} or {name!r} in {place}: there is {shown}"
        )
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


def reported(
    index: int, metadata: Mapping[str, Any], name: str, arm: str = ""
) -> tuple[Results, str]:
    """Return results of a trial among which is one of a name, its mean or its curve; and where they
    are.

    Args:
        index: the trial.
        metadata: its run metadata.
        name: name of the result.
        arm: name of the arm; ``""``: the trial has one app.

    Raises:
        MetricMissing: if there is none, or under several keys that the app's own results do not
            tell apart.
    """
    if BASE not in metadata:
        raise MetricMissing(
            f"trial {index}: its run metadata has no {BASE!r}: it was not run by a TransloadRunner"
        )
    base, handle = base_of(metadata[BASE], arm), metadata.get(HANDLE)
    handle = handle.get(arm) if isinstance(handle, Mapping) else handle
    shared = {} if base is None else FsspecResultTracker(base).get(str(index))
    if _has(shared, name) or not handle:
        return shared, f"key {index} of {base}"
    record = metadata.get(f"{RECORD}/{arm}" if arm else RECORD) or {}
    clusters = [Cluster.from_dict(record["cluster"])] if record.get("cluster") else []
    own = host_runner(HOST, clusters=clusters).results(handle)
    having: dict[str, Any] = {
        key: {name: 0} for key, values in own.results.items() if _has(values, name)
    }
    try:
        key = replace(own, results=having).key_of(name)
    except NoSuchResult as exc:
        old = (
            f" (key {index} of {base}, which trials share, has {', '.join(list(shared)[:10])})"
            if shared
            else ""
        )
        raise MetricMissing(
            str(exc) if having else f"no result {name!r}: {own.explain()}{old}"
        ) from exc
    return own.results[key], f"key {key!r} of {own.looked_in[0]}"


def _has(results: Results, name: str) -> bool:
    return name in results or any(each.startswith(f"{name}/") for each in results)


def _fetch(
    metric: Metric, trial: BaseTrial, read: Callable[[Results, str], list[tuple[float, ...]]]
) -> MetricFetchResult:
    """Return a row for each mean, standard error and perhaps step that is read of an arm that has
    not been given up.
    """
    columns, rows = ("mean", "sem", MAP_KEY), []
    batch = isinstance(trial, BatchTrial)
    gone = {each.name for each in trial.abandoned_arms} if isinstance(trial, BatchTrial) else set()
    try:
        for name in (arm.name for arm in trial.arms if arm.name not in gone):
            found = reported(trial.index, trial.run_metadata, metric.name, name if batch else "")
            about = {"arm_name": name, "trial_index": trial.index, "metric_name": metric.name}
            about["metric_signature"] = metric.signature
            rows += [about | dict(zip(columns, values, strict=False)) for values in read(*found)]
        return Ok(Data(df=pd.DataFrame.from_records(rows)))
    except Exception as exc:
        return Err(MetricFetchE(message=f"trial {trial.index}: {exc}", exception=exc))
