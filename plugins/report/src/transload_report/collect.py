"""Reading what a page shows: through the runner, the trackers and the ledger of a search."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
from transload_report.model import AppData, LineageData, LogTail, RunsData

if TYPE_CHECKING:
    from transload.runner import AppResults, Runner
    from transload.tracker import Lineage

__all__ = ["collect_app", "collect_lineage", "collect_runs"]

LINES: Final = 20
"""How many of the last log lines are shown of a replica, unless told otherwise."""

Curves = Mapping[str, Mapping[str, Mapping[float, float]]]

MAX_LOGS: Final = 30
"""Of how many replicas log lines are shown."""
_FEW: Final = 12  # of more replicas, only so many of those that did well are shown
_MAX_ASKED: Final = 200


def collect_app(runner: Runner, handle: str, *, lines: int = LINES) -> AppData:
    """Read all that the page of an app shows.

    Args:
        runner: asks the scheduler and the trackers.
        handle: the app.
        lines: how many of the last log lines of each replica; of many replicas, those that failed
            come first.

    Raises:
        AppNotFound: if there is no such app.
        MalformedAppHandleException: if it is not a handle.
        SchedulerUnavailable: if the scheduler cannot be reached.
    """
    data = _collect(runner, handle)
    chosen = _chosen(data.status)
    logs = [_tail(runner, handle, each, lines) for each in chosen] if lines > 0 else []
    count = sum(len(role.replicas) for role in data.status.roles)
    return AppData(
        **{name: getattr(data, name) for name in _BASIC},
        logs=logs,
        logs_left_out=count - len(chosen),
        lineage=_lineage(runner, handle),
    )


_BASIC: Final = (
    *("handle", "status", "written", "app", "created", "cfg", "tracker_base", "log_url", "results"),
    *("results_problem", "steps"),
)


def _collect(runner: Runner, handle: str) -> AppData:
    """Read everything but logs and lineage."""
    written = time.time()
    found = runner.description(handle)
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
    )


def collect_runs(runner: Runner, handles: Sequence[str], *, title: str = "") -> RunsData:
    """Read what the page of several runs shows; those that are not there are named on it.

    Args:
        runner: asks the schedulers.
        handles: the apps.
        title: headline of the page.

    Raises:
        MalformedAppHandleException: if one is not a handle.
        SchedulerUnavailable: if a scheduler cannot be reached.
    """
    runs, missing = [], []
    for handle in handles:
        try:
            runs.append(_collect(runner, handle))
        except AppNotFound:
            missing.append(handle)
    count = len(runs)
    return RunsData(title or f"{count} run{'' if count == 1 else 's'}", runs, time.time(), missing)


def collect_lineage(runner: Runner, run_id: str) -> LineageData | None:
    """Read what the page of a lineage shows; None if no configured tracker knows anything of the
    run.

    Args:
        runner: knows the trackers, and asks for the states of those runs that are apps.
        run_id: the run, mostly an app handle.
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
            continue  # no such scheduler here, or not reached: the page shows no states of its apps
        states.update(
            {handle: status.state for handle, status in found.items() if status is not None}
        )
    return states


def _lineage(runner: Runner, run_id: str) -> Lineage | None:
    """Return the lineage of a run from the first tracker that knows something of it."""
    trackers = runner.settings.trackers()
    if not trackers:
        return None
    from transload.tracker import build_trackers

    for tracker in build_trackers(trackers):
        try:
            found = tracker.lineage(run_id)
        except (TransloadError, OSError):
            continue  # the rest of the page is worth having
        if found.edges or found.artifacts:
            return found
    return None


def _results(runner: Runner, handle: str) -> tuple[AppResults | None, Curves, str]:
    try:
        return runner.results(handle), runner.steps(handle), ""
    except (TransloadError, OSError, ImportError) as exc:
        return None, {}, f"The results cannot be read: {exc}"


def _chosen(status: AppStatus) -> list[ReplicaStatus]:
    """Return the replicas whose logs are shown: those that failed by themselves, other failures,
    the rest in order.
    """
    replicas = [
        replica
        for role in status.roles
        for replica in sorted(role.replicas, key=lambda each: each.id)
    ]

    def rank(replica: ReplicaStatus) -> tuple[int, float]:
        if replica.state is not AppState.FAILED:
            return (2 if replica.state is AppState.RUNNING or not replica.restarts else 1), 0.0
        return (
            -1 if replica.exit_code is not None and replica.exit_code > 0 else 0,
            replica.end_time or 0.0,
        )

    ranked = sorted(replicas, key=rank)
    telling = sum(rank(replica)[0] < 2 for replica in ranked)
    return ranked[: min(MAX_LOGS, max(_FEW, telling))]


def _tail(runner: Runner, handle: str, replica: ReplicaStatus, count: int) -> LogTail:
    """Return the last lines of a replica's log."""
    parsed = parse_app_handle(handle)
    try:
        scheduler = runner.scheduler(parsed.scheduler_backend)
        # one more than is shown tells whether there are more
        found = last_lines(
            scheduler, parsed.app_id, replica.role, replica.id, Stream.COMBINED, count + 1
        )
    except (TransloadError, OSError) as exc:
        return LogTail(replica.role, replica.id, (), False, f"The log cannot be read: {exc}")
    return LogTail(replica.role, replica.id, tuple(found[-count:]), len(found) > count)
