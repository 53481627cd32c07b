"""Read the data of a page from the runner, the trackers and the ledger of a search."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from transload.errors import AppNotFound, TransloadError
from transload.runner.logs import last_lines
from transload.schedulers import Stream
from transload.specs import (
    AppState,
    AppStatus,
    MalformedAppHandleException,
    ReplicaStatus,
    parse_app_handle,
)
from transload.tracker import build_trackers
from transload_report.convert import replicas_of
from transload_report.model import AppData, LineageData, LogTail, RunsData

if TYPE_CHECKING:
    from transload.runner import AppResults, Runner
    from transload.tracker import Lineage

__all__ = ["collect_app", "collect_lineage", "collect_runs"]

LINES: Final = 20
"""The default number of last log lines for each replica."""

Curves = Mapping[str, Mapping[str, Mapping[float, float]]]

MAX_LOGS: Final = 30
"""The largest number of replicas whose log lines are shown."""
_FEW: Final = 12  # with more replicas, this many of those without a problem are shown
_MAX_ASKED: Final = 200

# ranks of replicas, the first to show first
_FAILED_BY_ITSELF: Final = -1
_FAILED: Final = 0
_RESTARTED: Final = 1
_DOING_WELL: Final = 2


def collect_app(runner: Runner, handle: str, *, lines: int = LINES) -> AppData:
    """Read the data of a job's page.

    Args:
        runner: asks the scheduler and the trackers.
        handle: the job.
        lines: the number of last log lines for each replica. With many replicas, those that failed
            take precedence.

    Raises:
        AppNotFound: if there is no such job.
        MalformedAppHandleException: if it is not a handle.
        SchedulerUnavailable: if the scheduler cannot be reached.
    """
    data = _collect(runner, handle)
    chosen = _chosen(data.status)
    logs: list[LogTail] = []
    if lines > 0:
        logs = [_tail(runner, handle, replica, lines) for replica in chosen]
    count = sum(len(role.replicas) for role in data.status.roles)
    return replace(
        data,
        logs=logs,
        logs_left_out=count - len(chosen),
        lineage=_lineage(runner, handle),
    )


def _collect(runner: Runner, handle: str) -> AppData:
    """Read everything except for logs and lineage."""
    written = time.time()
    found = runner.job(handle).description()
    if found is None:
        raise AppNotFound(handle)
    results, steps, problem = _results(runner, handle)
    return AppData(
        handle=handle,
        status=found.status,
        written=written,
        app=found.app,
        created=found.created,
        cfg=found.cfg,
        tracker_base=found.tracker_base,
        log_url=found.log_url,
        results=results,
        results_problem=problem,
        steps=steps,
        asked=found.asked,
    )


def collect_runs(runner: Runner, handles: Sequence[str], *, title: str = "") -> RunsData:
    """Read the data of a page about several runs. The page names those that do not exist.

    Args:
        runner: asks the schedulers.
        handles: the jobs.
        title: headline of the page.

    Raises:
        MalformedAppHandleException: if one is not a handle.
        SchedulerUnavailable: if a scheduler cannot be reached.
    """
    runs = []
    missing = []
    for handle in handles:
        try:
            runs.append(_collect(runner, handle))
        except AppNotFound:
            missing.append(handle)
    if not title:
        title = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return RunsData(title, runs, time.time(), missing)


def collect_lineage(runner: Runner, run_id: str) -> LineageData | None:
    """Read the data of a lineage's page, or return None if no configured tracker has the run.

    Args:
        runner: knows the trackers, and asks for the states of the runs that are jobs.
        run_id: the run, usually the handle of a job.
    """
    lineage = _lineage(runner, run_id)
    if lineage is None:
        return None
    runs = [lineage.run_id, *lineage.parents, *lineage.descendants][:_MAX_ASKED]
    return LineageData(lineage, time.time(), _states(runner, runs))


def _states(runner: Runner, runs: Sequence[str]) -> dict[str, AppState]:
    by_scheduler: dict[str, list[str]] = {}
    for run in runs:
        try:
            by_scheduler.setdefault(parse_app_handle(run).scheduler_backend, []).append(run)
        except MalformedAppHandleException:
            continue  # a run of another kind
    states = {}
    for handles in by_scheduler.values():
        try:
            found = runner.status_many(handles)
        except TransloadError:
            continue  # its scheduler is unknown or unreachable, so the page shows no state
        states.update(
            {handle: status.state for handle, status in found.items() if status is not None}
        )
    return states


def _lineage(runner: Runner, run_id: str) -> Lineage | None:
    """Return the lineage of a run from the first tracker that has the run."""
    for tracker in build_trackers(runner.settings.trackers()):
        try:
            found = tracker.lineage(run_id)
        except (TransloadError, OSError):
            continue  # the rest of the page is still useful
        if found.edges or found.artifacts:
            return found
    return None


def _results(runner: Runner, handle: str) -> tuple[AppResults | None, Curves, str]:
    try:
        return runner.results(handle), runner.job(handle).steps(), ""
    except (TransloadError, OSError, ImportError) as exc:
        return None, {}, f"The results cannot be read: {exc}"


def _chosen(status: AppStatus) -> list[ReplicaStatus]:
    """Return the replicas whose logs are shown, the failed ones first, the others in order."""
    ranked = sorted(replicas_of(status), key=_rank)
    telling = sum(_rank(replica)[0] < _DOING_WELL for replica in ranked)
    return ranked[: min(MAX_LOGS, max(_FEW, telling))]


def _rank(replica: ReplicaStatus) -> tuple[int, float]:
    """Return a sort key by the importance of a replica's log, then by the time of its failure."""
    if replica.state is AppState.FAILED:
        failed_by_itself = replica.exit_code is not None and replica.exit_code > 0
        ended = replica.end_time or 0.0
        return (_FAILED_BY_ITSELF if failed_by_itself else _FAILED), ended
    if replica.restarts and replica.state is not AppState.RUNNING:
        return _RESTARTED, 0.0
    return _DOING_WELL, 0.0


def _tail(runner: Runner, handle: str, replica: ReplicaStatus, count: int) -> LogTail:
    """Return the last lines of a replica's log."""
    role = replica.role
    number = replica.id
    parsed = parse_app_handle(handle)
    try:
        scheduler = runner.scheduler(parsed.scheduler_backend)
        # one more line than needed shows whether there are more
        found = last_lines(
            scheduler, parsed.app_id, role, number, stream=Stream.COMBINED, number=count + 1
        )
    except (TransloadError, OSError) as exc:
        return LogTail(role, number, problem=f"The log cannot be read: {exc}")
    return LogTail(role, number, lines=tuple(found[-count:]), cut=len(found) > count)
