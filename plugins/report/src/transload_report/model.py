"""The plain data of a page, which `collect` reads and `page` draws."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
        cut: whether there are earlier lines.
        problem: why the log could not be read, or ``""`` if it could.
    """

    role: str
    replica: int
    lines: Sequence[str] = ()
    cut: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AppData:
    """The data of a job's page. Times are seconds since the epoch.

    Args:
        handle: the handle of the job.
        status: its status.
        written: when the data were read.
        app: the app definition, or None if the scheduler does not keep it.
        created: when it was submitted.
        cfg: the run options of its submit.
        tracker_base: where it reports results.
        log_url: folder or page of its logs.
        results: its results, or None if they could not be read.
        results_problem: why they could not be read.
        steps: key → name → step → value, for the results with steps.
        logs: the last log lines of its replicas, or of the most important ones.
        logs_left_out: the number of replicas that are not in ``logs``.
        lineage: the runs before and after it, or None without a tracker.
        asked: who asked for it (`transload.schedulers.Submission.asked`).
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
    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunsData:
    """The data of a page about several runs.

    Args:
        title: headline of the page.
        runs: the jobs, whose logs and lineage are not shown.
        written: when the data were read, in seconds since the epoch.
        missing: handles of jobs that do not exist.
    """

    title: str
    runs: Sequence[AppData]
    written: float
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LineageData:
    """The data of a lineage's page.

    Args:
        lineage: the lineage.
        written: when it was read, in seconds since the epoch.
        states: run id → state, for the runs that are jobs of a reachable scheduler.
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
        state: its state in the orchestrator's own word, for example ``EARLY_STOPPED``.
        app_state: its state as an `AppState`.
        value: the objective, or None if there is none (yet).
        handle: the handle of its job, or ``""`` if it has none.
    """

    index: int
    parameters: Mapping[str, Any]
    state: str
    app_state: AppState
    value: float | None = None
    handle: str = ""


@dataclass(frozen=True, slots=True)
class SearchData:
    """The data of a search's page.

    Args:
        name: the name of the search.
        objective: the name of the result that it minimizes or maximizes.
        minimize: whether small values are good.
        trials: the trials so far, by number.
        written: when the data were read, in seconds since the epoch.
        planned: the number of trials in all, or None if it is unknown.
        facts: further facts about it, name → text.
        log_parameters: names of the parameters that are searched on a logarithmic scale.
    """

    name: str
    objective: str
    minimize: bool
    trials: Sequence[TrialData]
    written: float
    planned: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    log_parameters: Collection[str] = ()
