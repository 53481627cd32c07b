"""Convert jobs to rows of a timeline, and their results to series. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from transload.runner import AppResults
from transload.specs import (
    AppState,
    AppStatus,
    ReplicaAttempt,
    ReplicaStatus,
    exit_text,
    is_terminal,
)
from transload_report.axes import is_drawable
from transload_report.model import AppData
from transload_report.words import duration_text

__all__ = [
    "Bar",
    "Row",
    "Series",
    "Span",
    "app_span",
    "counts",
    "earlier_counts",
    "is_interrupted",
    "last_values",
    "replica_rows",
    "replicas_of",
    "run_rows",
    "series_of",
    "single_results",
    "thinned",
]

MAX_ROWS: Final = 500
"""The largest number of rows in a timeline."""

_NUMBERED: Final = re.compile(r"(-?|.*?)(\d{1,15})\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt of a replica.

    Args:
        start: in seconds since the epoch.
        end: in seconds since the epoch, or for a running attempt when the status was read.
        state: its state.
        says: a description in one line.
        interrupted: whether it ended because of the machine, the queue or the end of a segment.
    """

    start: float
    end: float
    state: AppState
    says: str
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One replica, or one job, in a timeline.

    Args:
        label: its name.
        group: the name of its group, whose rows are adjacent.
        state: its state.
        bars: its attempts, oldest first.
        waited: the time since which it waited for its first start, or None if it is unknown.
        note: a few words about its end, for example ``exit code 3``.
        restarts: the number of earlier attempts whose times are unknown.
    """

    label: str
    group: str
    state: AppState
    bars: Sequence[Bar] = ()
    waited: float | None = None
    note: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A start and an end, in seconds since the epoch, or None if unknown."""

    start: float | None
    end: float | None

    @property
    def seconds(self) -> float | None:
        """Its length in seconds, or None if it is unknown."""
        if self.start is None or self.end is None:
            return None
        return max(0.0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Series:
    """A result that was reported under numbered keys.

    Args:
        name: name of the result.
        group: the common part of the keys, such as ``""`` for 0, 1, 2 … or ``epoch-`` for epoch-0
            …, or ``step `` for steps.
        points: ``(number, value)`` by number.
    """

    name: str
    group: str
    points: Sequence[tuple[float, float]] = field(default_factory=list)

    @property
    def joined(self) -> bool:
        """Whether a line joins the points, which holds for steps and epochs, but not for replicas.

        The keys of replicas are ``0``, ``1``, ``trainer/0`` and so on.
        """
        return bool(self.group) and not self.group.endswith("/")

    @property
    def across(self) -> str:
        """The unit of its numbers, which is step, epoch or key."""
        return self.group.rstrip("-_/.: ") or "key"


def replica_rows(status: AppStatus, created: float | None, written: float) -> list[Row]:
    """Return a row for each replica, by role and number.

    Args:
        status: the status of the job.
        created: when it was submitted, in seconds since the epoch.
        written: when the status was read.
    """
    return [_replica_row(replica, created, written) for replica in replicas_of(status)]


def replicas_of(status: AppStatus) -> list[ReplicaStatus]:
    """Return the replicas of all roles, by role and number."""
    replicas: list[ReplicaStatus] = []
    for role in status.roles:
        replicas += sorted(role.replicas, key=lambda replica: replica.id)
    return replicas


def _replica_row(replica: ReplicaStatus, created: float | None, written: float) -> Row:
    attempts: list[ReplicaStatus | ReplicaAttempt] = list(replica.earlier)
    if not _waits_again(replica):
        attempts.append(replica)
    bars = [_attempt_bar(attempt, written) for attempt in attempts]
    known_bars = [bar for bar in bars if bar is not None]
    note = ""
    if is_terminal(replica.state) and replica.exit_code not in (None, 0):
        note = exit_text(replica.exit_code)
    return Row(
        label=f"{replica.role}/{replica.id}",
        group=replica.role,
        state=replica.state,
        bars=known_bars,
        waited=_waited_since(created, known_bars),
        note=note,
        restarts=max(0, replica.restarts + replica.interruptions - len(replica.earlier)),
    )


def _waits_again(replica: ReplicaStatus) -> bool:
    """Tell whether a replica waits for its next attempt, so that its times are the last one's."""
    return bool(replica.earlier) and replica.earlier[-1].start_time == replica.start_time


def _waited_since(created: float | None, bars: Sequence[Bar]) -> float | None:
    """Return when the wait for the first bar began, or None if it is unknown."""
    if created is None or not bars or created > bars[0].start:
        return None
    return created


def _attempt_bar(attempt: ReplicaStatus | ReplicaAttempt, written: float) -> Bar | None:
    span = Span(attempt.start_time, attempt.end_time)
    bar = _bar(attempt.state, attempt.exit_code, span, written)
    if bar is None or not isinstance(attempt, ReplicaAttempt) or not is_interrupted(attempt):
        return bar
    says = f"interrupted ({attempt.cause}), {duration_text(bar.end - bar.start)}"
    return replace(bar, says=says, interrupted=True)


def is_interrupted(attempt: ReplicaAttempt) -> bool:
    """Tell whether an attempt ended because of the machine, the queue or the end of a segment."""
    return attempt.cause not in (None, "failed")


def _bar(state: AppState, code: int | None, span: Span, written: float) -> Bar | None:
    """Return the bar of an attempt, or None if its start is unknown."""
    if span.start is None:
        return None
    if span.end is not None:
        end = span.end
    elif is_terminal(state):
        end = span.start
    else:
        end = written
    end = max(span.start, end)
    says = str(state)
    if code not in (None, 0):
        says += f", {exit_text(code)}"
    return Bar(span.start, end, state, f"{says}, {duration_text(end - span.start)}")


def run_rows(runs: Sequence[AppData]) -> list[Row]:
    """Return a row for each job, from the first start of a replica to the last end."""
    rows = []
    for run in runs:
        state = run.status.state
        bar = _bar(state, None, app_span(run.status, run.written), run.written)
        bars = [] if bar is None else [bar]
        label = run.handle.rpartition("/")[2]
        waited = _waited_since(run.created, bars)
        rows.append(Row(label=label, group="", state=state, bars=bars, waited=waited))
    return rows


def app_span(status: AppStatus, written: float) -> Span:
    """Return the time from the first start of a replica to the last end, or to ``written``.

    Args:
        status: the status of the job.
        written: the end for a job that has not ended, in seconds since the epoch.
    """
    attempts: list[ReplicaStatus | ReplicaAttempt] = []
    for replica in replicas_of(status):
        attempts += [*replica.earlier, replica]
    starts = [each.start_time for each in attempts if each.start_time is not None]
    ends = [each.end_time for each in attempts if each.end_time is not None]
    if not starts:
        return Span(None, None)
    if not status.is_terminal():
        return Span(min(starts), max(written, *starts))
    return Span(min(starts), max(ends, default=None))


def thinned(rows: Sequence[Row], limit: int = MAX_ROWS) -> list[Row]:
    """Return at most ``limit`` rows in their order.

    Rows with a failure or a restart take precedence. From the others, an even selection is kept.
    """
    if len(rows) <= limit:
        return list(rows)
    marked = [i for i, row in enumerate(rows) if _is_remarkable(row)]
    kept = set(_evenly(marked, limit))
    others = [i for i in range(len(rows)) if i not in kept]
    kept.update(_evenly(others, limit - len(kept)))
    return [rows[i] for i in sorted(kept)]


def _is_remarkable(row: Row) -> bool:
    was_restarted = len(row.bars) > 1 or row.restarts > 0
    return was_restarted or row.state is not AppState.SUCCEEDED


def _evenly(items: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` items, evenly spread over the sequence."""
    if len(items) <= count:
        return list(items)
    return [items[k * len(items) // count] for k in range(count)]


def series_of(
    results: AppResults, steps: Mapping[str, Mapping[str, Mapping[float, float]]] | None = None
) -> list[Series]:
    """Return the series of a job, first its results with steps, then numbers under numbered keys.

    Args:
        results: the results of the job.
        steps: key → name → step → value, for the results with steps.
    """
    return [*_step_series(steps or {}), *_numbered_series(results)]


def _step_series(steps: Mapping[str, Mapping[str, Mapping[float, float]]]) -> list[Series]:
    found = []
    for key, curves in steps.items():
        for name, points in curves.items():
            placed = [at for at, value in points.items() if is_drawable(at) and is_drawable(value)]
            if len(points) < 2 or not placed:
                continue
            title = name if len(steps) == 1 else f"{name} of {_key_text(key)}"
            found.append(Series(title, "step ", sorted(points.items())))
    return found


def _key_text(key: str) -> str:
    return f"replica {key}" if key.isdigit() else key


def _numbered_series(results: AppResults) -> list[Series]:
    """Return a series for each result whose keys differ only in a number."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for key, values in results.results.items():
        place = _numbered(key)
        if place is None:
            continue
        group, number = place
        for name, value in values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found.setdefault((group, name), {})[number] = _as_float(value)
    series = []
    for (group, name), points in found.items():
        drawable = [value for value in points.values() if is_drawable(value)]
        if len(drawable) >= 2:
            series.append(Series(name, group, sorted(points.items())))
    return series


def _numbered(key: str) -> tuple[str, int] | None:
    """Split a key into a text and the number at its end, or return None if there is no number."""
    match = _NUMBERED.match(key)
    if match is None:
        return None
    before = match[1]
    number = int(match[2])
    if before == "-":  # a sign, while after other text a hyphen joins, as in epoch-3
        return "", -number
    return before, number


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def single_results(
    results: AppResults, series: Iterable[Series]
) -> list[tuple[str, str, int | float | str]]:
    """Return ``(key, name, value)`` for each result that is in no series."""
    plotted = {(each.group, each.name, place) for each in series for place, _ in each.points}
    rows = []
    for key, values in results.results.items():
        place = _numbered(key)
        for name, value in values.items():
            if place is None or (place[0], name, place[1]) not in plotted or isinstance(value, str):
                rows.append((key, name, value))
    return rows


def last_values(results: AppResults) -> dict[str, int | float | str]:
    """Return name → value, with the last value of a curve and the first value of replicas.

    A result under a key without a number takes precedence.
    """
    series = series_of(results)
    found: dict[str, int | float | str] = {}
    for each in series:
        index = -1 if each.joined else 0
        found[each.name] = each.points[index][1]
    found.update({name: value for _, name, value in single_results(results, series)})
    return found


def earlier_counts(status: AppStatus) -> Mapping[AppState, int]:
    """Return how many earlier attempts ended in each state, without interruptions."""
    states: list[AppState] = []
    for replica in replicas_of(status):
        states += [attempt.state for attempt in replica.earlier if not is_interrupted(attempt)]
    return counts(states)


def counts(states: Iterable[AppState]) -> Mapping[AppState, int]:
    """Return the number of each state, in the order of the states."""
    listed = list(states)
    return {state: listed.count(state) for state in AppState if state in listed}
