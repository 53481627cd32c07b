"""Metrics that read what trials reported through the result tracker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

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
from transload_ax.units import BASE, CLUSTER, HOST, PROGRESS, TrialNotes, base_of

Results = Mapping[str, Any]

Reader = Callable[[Results, str, float], "list[Row]"]
"""Takes the results of an arm, their place and the step that its job is at, and returns rows."""

SHOWN: Final = 10
"""How many names of results a message shows."""


@dataclass(frozen=True)
class Row:
    """What was read of an arm.

    Args:
        mean: the value.
        sem: its standard error, or NaN if unknown.
        step: where on the curve it is, or None if it is no point of a curve.
    """

    mean: float
    sem: float = math.nan
    step: float | None = None


class MetricMissing(TransloadError, LookupError):
    """A trial did not report what a metric reads, or reported no number."""


class TransloadMetric(Metric):
    """Reads ``name``, or ``name/mean`` and ``name/sem``, from what a trial reported.

    That is looked for under the trial's index in the experiment's tracker base, then in the results
    of the trial's job, as `AppResults.value` does. So a program needs to know nothing of trials. A
    value that is missing, NaN, infinite or no number is an error with the place and what is there.
    Ax then marks the trial ABANDONED if it is an objective.

    Args:
        name: name of the result.
        lower_is_better: True if small is good, which is kept when stored.
        properties: see ``ax.core.metric.Metric``.
        signature_override: see ``ax.core.metric.Metric``.
    """

    def fetch_trial_data(self, trial: BaseTrial, **kwargs: object) -> MetricFetchResult:
        """Return the metric's value for each arm of a trial. The ``kwargs`` mean nothing to it."""

        def read(results: Results, place: str, reached: float) -> list[Row]:
            mean, sem = read_value(results, place, self.name)
            return [Row(mean, sem)]

        return _fetch(self, trial, read)


class TransloadCurveMetric(MapMetric):
    """Reads a learning curve, while its trial runs. Early stopping works on it.

    The curve is what the job reported as ``name`` with a step
    (``transload.runtime.report(step=…)``), or the results ``name/<step>``. A trial that reports
    only the latest value, as ``name``, gives one point for each look. Its step is what the result
    ``step_name`` says, else what the job says of its progress
    (``transload.runtime.progress(step=…)``), else 0. Points that are NaN or infinite are left out.

    Args:
        name: name of the result.
        lower_is_better: True if small is good, which is kept when stored. Early stopping needs it.
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
        """Return True, since a curve grows while its trial runs."""
        return True

    def fetch_trial_data(self, trial: BaseTrial, **kwargs: object) -> MetricFetchResult:
        """Return the curve of each arm of a trial, as far as it goes.

        The ``kwargs`` mean nothing to it.
        """

        def read(results: Results, place: str, reached: float) -> list[Row]:
            curve = read_curve(results, place, self.name, self.step_name, reached)
            return [Row(value, step=step) for step, value in curve]

        return _fetch(self, trial, read, with_steps=True)


def read_value(results: Results, place: str, name: str) -> tuple[float, float]:
    """Return mean and standard error (NaN if unknown) of a result.

    Raises:
        MetricMissing: if it is not there or no finite number.
    """
    if name in results:
        return _finite(results[name], name, place), math.nan
    if f"{name}/mean" not in results:
        raise MetricMissing(f"no result {name!r} in {place}: there is {_names(results)}")
    mean = _finite(results[f"{name}/mean"], f"{name}/mean", place)
    sem = results.get(f"{name}/sem")
    if sem is None:
        return mean, math.nan
    return mean, _number(sem, f"{name}/sem", place)


def read_curve(
    results: Results, place: str, name: str, step_name: str, reached: float = 0.0
) -> list[tuple[float, float]]:
    """Return the points of a curve, by growing step.

    Args:
        results: what the trial reported.
        place: where that is, for messages.
        name: name of the result.
        step_name: name of the result that says how far the trial is.
        reached: how far it is where no result says so.

    Raises:
        MetricMissing: if there is none with a finite number.
    """
    points: dict[float, float] = {}
    for full, value in results.items():
        head, _, step = full.rpartition("/")
        if head == name and _is_number(step):
            points[float(step)] = _number(value, full, place)
    if not points and name in results:
        latest = _number(results.get(step_name, reached), step_name, place)
        points[latest] = _number(results[name], name, place)
    curve = sorted((step, value) for step, value in points.items() if math.isfinite(value))
    if not curve:
        raise MetricMissing(
            f"no finite result '{name}/<step>' or {name!r} in {place}: there is {_names(results)}"
        )
    return curve


def _names(results: Results) -> str:
    """Return the first names of some results, for a message."""
    return ", ".join(map(repr, list(results)[:SHOWN])) or "nothing"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(value: Any, name: str, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MetricMissing(f"result {name!r} in {place} is {value!r}: must be a number")
    return float(value)


def _finite(value: Any, name: str, place: str) -> float:
    number = _number(value, name, place)
    if not math.isfinite(number):
        raise MetricMissing(f"result {name!r} in {place} is {number}: must be a finite number")
    return number


def reported(
    index: int,
    metadata: MutableMapping[str, Any],
    name: str,
    arm: str = "",
    with_steps: bool = False,
) -> tuple[Results, str]:
    """Return results of a trial that have one of a name, its mean or its curve, and their place.

    Args:
        index: the trial.
        metadata: its run metadata.
        name: name of the result.
        arm: name of the arm, or ``""`` if the trial has one job.
        with_steps: what the job itself reported with a step is added, as ``name/<step>``.

    Raises:
        MetricMissing: if there is none, or under several keys that the job's own results do not
            tell apart.
    """
    if BASE not in metadata:
        raise MetricMissing(
            f"trial {index}: its run metadata has no {BASE!r}: it was not run by a TransloadRunner"
        )
    base = base_of(metadata[BASE], arm)
    shared: Results = {}
    if base is not None:
        shared = FsspecResultTracker(base).get(str(index))
    notes = TrialNotes(metadata)
    handle = notes.handles().get(arm)
    if _has(shared, name) or not handle:
        return shared, f"key {index} of {base}"
    cluster = notes.get(CLUSTER, arm)
    clusters = [Cluster.from_dict(cluster)] if cluster else []
    job = host_runner(HOST, clusters=clusters).job(handle)
    own = job.results()
    having: dict[str, Any] = {
        key: {name: 0} for key, values in own.results.items() if _has(values, name)
    }
    try:
        key = replace(own, results=having).key_of(name)
    except NoSuchResult as exc:
        if having:
            raise MetricMissing(str(exc)) from exc
        reason = f"no result {name!r}: {own.explain()}"
        if shared:
            there = ", ".join(list(shared)[:SHOWN])
            reason += f" (key {index} of {base}, which trials share, has {there})"
        raise MetricMissing(reason) from exc
    results: dict[str, Any] = dict(own.results[key])
    if with_steps:
        curve = job.steps().get(key, {}).get(name, {})
        results.update({f"{name}/{step!r}": value for step, value in curve.items()})
    return results, f"key {key!r} of {own.looked_in[0]}"


def _has(results: Results, name: str) -> bool:
    return name in results or any(each.startswith(f"{name}/") for each in results)


def _fetch(
    metric: Metric, trial: BaseTrial, read: Reader, with_steps: bool = False
) -> MetricFetchResult:
    """Return a row for each mean and standard error that is read of an arm.

    A row may have a step. Arms that were given up have no row.
    """
    try:
        rows = list(_rows(metric, trial, read, with_steps))
        return Ok(Data(df=pd.DataFrame.from_records(rows)))
    except Exception as exc:
        return Err(MetricFetchE(message=f"trial {trial.index}: {exc}", exception=exc))


def _rows(
    metric: Metric, trial: BaseTrial, read: Reader, with_steps: bool
) -> Iterator[dict[str, Any]]:
    """Yield what `_fetch` returns, as Ax's columns."""
    batch = isinstance(trial, BatchTrial)
    gone: set[str] = set()
    if isinstance(trial, BatchTrial):
        gone = {each.name for each in trial.abandoned_arms}
    for arm in trial.arms:
        if arm.name in gone:
            continue
        own_arm = ""
        if batch:
            own_arm = arm.name
        results, place = reported(trial.index, trial.run_metadata, metric.name, own_arm, with_steps)
        progress = TrialNotes(trial.run_metadata).get(PROGRESS, own_arm)
        reached = float(progress.get("step", 0))
        for row in read(results, place, reached):
            columns: dict[str, Any] = {
                "arm_name": arm.name,
                "trial_index": trial.index,
                "metric_name": metric.name,
                "metric_signature": metric.signature,
                "mean": row.mean,
                "sem": row.sem,
            }
            if row.step is not None:
                columns[MAP_KEY] = row.step
            yield columns
