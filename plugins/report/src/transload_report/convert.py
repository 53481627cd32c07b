"""From what is known of apps to what is drawn: rows of a timeline, series of results. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    "last_values",
    "replica_rows",
    "run_rows",
    "series_of",
    "single_results",
    "thinned",
]

MAX_ROWS: Final = 500
"""How many rows a timeline has at most."""

_NUMBERED: Final = re.compile(r"(-?|.*?)(\d{1,15})\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt of a replica.

    Args:
        start: seconds since the epoch.
        end: likewise; where it still runs, when this was read.
        state: how it ended, or what it is doing.
        says: everything about it in one line.
    """

    start: float
    end: float
    state: AppState
    says: str


@dataclass(frozen=True, slots=True)
class Row:
    """One replica, or one app, of a timeline.

    Args:
        label: its name.
        group: name of what it belongs to; rows of one group stand together.
        state: what it is doing.
        bars: its attempts, oldest first.
        waited: since when it waited for its first start; None: not known.
        note: few words for its end, for example ``exit code 3``.
        restarts: attempts before the latest of which no times are known.
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
    """From when to when; seconds since the epoch, None where it is not known."""

    start: float | None
    end: float | None

    @property
    def seconds(self) -> float | None:
        """How long it is."""
        return None if self.start is None or self.end is None else max(0.0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Series:
    """A result that was reported under numbered keys.

    Args:
        name: name of the result.
        group: what the keys have in common: ``""`` for 0, 1, 2 …, ``epoch-`` for epoch-0 …; ``step
            `` for steps.
        points: ``(number, value)`` by number.
    """

    name: str
    group: str
    points: Sequence[tuple[float, float]] = field(default_factory=list)

    @property
    def joined(self) -> bool:
        """Whether one point leads to the next: steps and epochs do, replicas (``0``, ``1``,
        ``trainer/0``) do not.
        """
        return bool(self.group) and not self.group.endswith("/")

    @property
    def across(self) -> str:
        """What its numbers count: step, epoch, key."""
        return self.group.rstrip("-_/.: ") or "key"


def replica_rows(status: AppStatus, created: float | None, written: float) -> list[Row]:
    """Return a row for each replica, by role and number.

    Args:
        status: the app's status.
        created: when it was submitted, seconds since the epoch.
        written: when the status was read.
    """
    return [
        _replica_row(replica, created, written)
        for role in status.roles
        for replica in sorted(role.replicas, key=lambda each: each.id)
    ]


def _replica_row(replica: ReplicaStatus, created: float | None, written: float) -> Row:
    bars = [
        bar
        for attempt in replica.earlier
        if (
            bar := _bar(
                attempt.state, attempt.exit_code, attempt.start_time, attempt.end_time, written
            )
        )
        is not None
    ]
    waits_again = bool(replica.earlier) and replica.earlier[-1].start_time == replica.start_time
    latest = _bar(replica.state, replica.exit_code, replica.start_time, replica.end_time, written)
    if latest is not None and not waits_again:
        bars.append(latest)
    note = (
        ""
        if replica.exit_code in (None, 0) or not is_terminal(replica.state)
        else exit_text(replica.exit_code)
    )
    return Row(
        f"{replica.role}/{replica.id}",
        replica.role,
        replica.state,
        bars,
        None if not bars or created is None or created > bars[0].start else created,
        note,
        max(0, replica.restarts - len(replica.earlier)),
    )


def _bar(
    state: AppState, code: int | None, start: float | None, end: float | None, written: float
) -> Bar | None:
    if start is None:
        return None
    stop = end if end is not None else start if is_terminal(state) else written
    stop = max(start, stop)
    says = str(state) if code in (None, 0) else f"{state}, {exit_text(code)}"
    return Bar(start, stop, state, f"{says}, {duration_text(stop - start)}")


def run_rows(runs: Sequence[AppData]) -> list[Row]:
    """Return a row for each app, from the first start of a replica to the last end."""
    rows = []
    for run in runs:
        span = app_span(run.status, run.written)
        bar = _bar(run.status.state, None, span.start, span.end, run.written)
        waited = (
            run.created
            if bar is not None and run.created is not None and run.created <= bar.start
            else None
        )
        label = run.handle.rpartition("/")[2]
        rows.append(Row(label, "", run.status.state, [] if bar is None else [bar], waited, "", 0))
    return rows


def app_span(status: AppStatus, written: float) -> Span:
    """Return from the first start of a replica to the last end; until ``written`` if the app goes
    on.
    """
    replicas = [replica for role in status.roles for replica in role.replicas]
    attempts: list[ReplicaStatus | ReplicaAttempt] = [
        each for replica in replicas for each in replica.earlier
    ]
    attempts += replicas
    starts = [each.start_time for each in attempts if each.start_time is not None]
    ends = [each.end_time for each in attempts if each.end_time is not None]
    if not starts:
        return Span(None, None)
    if not status.is_terminal():
        return Span(min(starts), max(written, *starts))
    return Span(min(starts), max(ends) if ends else None)


def thinned(rows: Sequence[Row], limit: int = MAX_ROWS) -> list[Row]:
    """Return at most ``limit`` rows in their order: those that failed or were started again first,
    then evenly.
    """
    if len(rows) <= limit:
        return list(rows)
    marked = [
        i
        for i, row in enumerate(rows)
        if len(row.bars) > 1 or row.restarts or row.state is not AppState.SUCCEEDED
    ]
    kept = set(_evenly(marked, limit))
    others = [i for i in range(len(rows)) if i not in kept]
    kept.update(_evenly(others, limit - len(kept)))
    return [rows[i] for i in sorted(kept)]


def _evenly(items: Sequence[int], count: int) -> list[int]:
    return (
        list(items)
        if len(items) <= count
        else [items[k * len(items) // count] for k in range(count)]
    )


def series_of(
    results: AppResults, steps: Mapping[str, Mapping[str, Mapping[float, float]]] | None = None
) -> list[Series]:
    """Return what was reported step by step, and the numbers of one name under keys that differ in
    their number.
    """
    found: dict[tuple[str, str], dict[int, float]] = {}
    for key, values in results.results.items():
        place = _numbered(key)
        if place is None:
            continue
        for name, value in values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found.setdefault((place[0], name), {})[place[1]] = _as_float(value)
    by_step = {
        name
        if steps and len(steps) == 1
        else f"{name} of {'replica ' if key.isdigit() else ''}{key}": points
        for key, curves in (steps or {}).items()
        for name, points in curves.items()
    }
    return [
        Series(name, "step ", sorted(points.items()))
        for name, points in by_step.items()
        if len(points) >= 2
    ] + [
        Series(name, group, sorted(points.items()))
        for (group, name), points in found.items()
        if sum(is_drawable(value) for value in points.values()) >= 2
    ]


def _numbered(key: str) -> tuple[str, int] | None:
    """Return what stands before the number at the end of a key, and the number; None if there is
    none.
    """
    match = _NUMBERED.match(key)
    if match is None:
        return None
    # a minus is a sign where nothing stands before it, else it joins, as in epoch-3
    return ("", -int(match[2])) if match[1] == "-" else (match[1], int(match[2]))


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def single_results(
    results: AppResults, series: Iterable[Series]
) -> list[tuple[str, str, int | float | str]]:
    """Return ``(key, name, value)`` of each result that is in none of the series."""
    plotted = {(each.group, each.name, place) for each in series for place, _ in each.points}
    rows = []
    for key, values in results.results.items():
        place = _numbered(key)
        for name, value in values.items():
            if place is None or (place[0], name, place[1]) not in plotted or isinstance(value, str):
                rows.append((key, name, value))
    return rows


def last_values(results: AppResults) -> dict[str, int | float | str]:
    """Return name → value: of a curve its last one, of replicas the first one's; a key without a
    number goes before.
    """
    series = series_of(results)
    found: dict[str, int | float | str] = {
        each.name: each.points[-1 if each.joined else 0][1] for each in series
    }
    found.update({name: value for _, name, value in single_results(results, series)})
    return found


def earlier_counts(status: AppStatus) -> Mapping[AppState, int]:
    """Return how many attempts before the latest ended in each state."""
    return counts(
        attempt.state
        for role in status.roles
        for replica in role.replicas
        for attempt in replica.earlier
    )


def counts(states: Iterable[AppState]) -> Mapping[AppState, int]:
    """Return how many there are of each state, in the order of the states."""
    listed = list(states)
    return {state: listed.count(state) for state in AppState if state in listed}
