"""What a page is made from: plain data, read by `collect`, drawn by `page`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transload.runner import AppResults
from transload.specs import AppDef, AppState, AppStatus, CfgVal
from transload.tracker import Lineage

__all__ = ["AppData", "LineageData", "LogTail", "RunsData", "SearchData", "TrialData"]


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines of one replica's log.

    Args:
        role: name of the role.
        replica: its number within the role.
        lines: the lines, without their newlines.
        cut: there are lines before these.
        problem: why the log could not be read; ``""`` if it could.
    """

    role: str
    replica: int
    lines: Sequence[str] = ()
    cut: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AppData:
    """All that the page of an app shows. Times are seconds since the epoch.

    Args:
        handle: the app.
        status: its status.
        written: when all this was read.
        app: the app as submitted; None if the scheduler does not keep it.
        created: when it was submitted.
        cfg: the run options that it was submitted with.
        tracker_base: where it reports results.
        log_url: folder or page of its logs.
        results: what it reported; None if that could not be read.
        results_problem: why it could not.
        steps: key → name → step → value, of what it reported step by step.
        logs: the last log lines of its replicas, or of those that matter most.
        logs_left_out: how many replicas are not in ``logs``.
        lineage: where it came from and what came of it; None without a tracker.
    """

    handle: str
    status: AppStatus
    written: float
    app: AppDef | None = None
    created: float | None = None
    cfg: Mapping[str, CfgVal] = field(default_factory=dict)
    tracker_base: str | None = None
    log_url: str | None = None
    results: AppResults | None = None
    results_problem: str = ""
    steps: Mapping[str, Mapping[str, Mapping[float, float]]] = field(default_factory=dict)
    logs: Sequence[LogTail] = ()
    logs_left_out: int = 0
    lineage: Lineage | None = None


@dataclass(frozen=True, slots=True)
class RunsData:
    """All that the page of several runs shows.

    Args:
        title: headline of the page.
        runs: the apps; their logs and lineage are not shown.
        written: when all this was read, seconds since the epoch.
        missing: handles of apps that are not there.
    """

    title: str
    runs: Sequence[AppData]
    written: float
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LineageData:
    """All that the page of a lineage shows.

    Args:
        lineage: the lineage.
        written: when it was read, seconds since the epoch.
        states: run id → state, of those runs that are apps which can be asked.
    """

    lineage: Lineage
    written: float
    states: Mapping[str, AppState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialData:
    """One trial of a search.

    Args:
        index: its number, from 0.
        parameters: argument → value.
        state: what it is doing, in the host's own word, for example ``EARLY_STOPPED``.
        app_state: the same as an `AppState`.
        value: the objective; None if there is none (yet).
        handle: its app; ``""`` if it has none.
    """

    index: int
    parameters: Mapping[str, Any]
    state: str
    app_state: AppState
    value: float | None = None
    handle: str = ""


@dataclass(frozen=True, slots=True)
class SearchData:
    """All that the page of a search shows.

    Args:
        name: the search.
        objective: name of the result that it makes small or large.
        minimize: True: small is good.
        trials: the trials so far, by number.
        written: when all this was read, seconds since the epoch.
        planned: how many trials in all; None: not known.
        facts: more to say about it, name → text.
    """

    name: str
    objective: str
    minimize: bool
    trials: Sequence[TrialData]
    written: float
    planned: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
