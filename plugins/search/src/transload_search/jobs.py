"""Find the jobs of a search's trials from any process, to cancel or delete them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from transload.errors import SchedulerUnavailable
from transload.pipelines import app_id_of
from transload.runner import Runner
from transload.specs import AppState, AppStatus, make_app_handle
from transload_search.ledger import SearchLedger


def running_jobs(ledger: SearchLedger, runner: Runner) -> dict[str, AppStatus]:
    """Return handle → status of the jobs that have not ended.

    Args:
        ledger: the search.
        runner: that of the command line, which submitted the jobs.

    Raises:
        SchedulerUnavailable: if a scheduler cannot be reached.
    """
    found = _submitted(ledger, runner, _unfinished(ledger))
    return {handle: job.status for handle, job in found.items() if not job.status.is_terminal()}


def latest_jobs(ledger: SearchLedger, runner: Runner) -> dict[int, str]:
    """Return the handle of the latest job of each trial that has no end, by the trial's number.

    Arguments and errors as in `running_jobs`.
    """
    found = _submitted(ledger, runner, _unfinished(ledger))
    return {job.trial: handle for handle, job in found.items()}


def _unfinished(ledger: SearchLedger) -> list[int]:
    return [trial.index for trial in ledger.unfinished()]


def all_jobs(ledger: SearchLedger, runner: Runner) -> dict[str, AppStatus]:
    """Return the status of all jobs that exist, by handle.

    Arguments and errors as in `running_jobs`.
    """
    rows = ledger.summary()["trials"]
    submitted = _submitted(ledger, runner, [row["index"] for row in rows])
    found = {handle: job.status for handle, job in submitted.items()}
    # the search may have gone on with another scheduler
    others = [row["handle"] for row in rows if row["handle"] and row["handle"] not in found]
    return {**found, **_existing(runner, others)}


@dataclass(frozen=True)
class _Job:
    trial: int
    status: AppStatus


def _submitted(ledger: SearchLedger, runner: Runner, trials: Iterable[int]) -> dict[str, _Job]:
    """Return the jobs of trials, by handle. A cancelled trial may have several."""
    search = ledger.search
    scheduler = search.scheduler or runner.settings.scheduler
    found: dict[str, _Job] = {}
    attempt = 0
    left = list(trials)
    while left:
        handles: dict[str, int] = {}
        for index in left:
            app_id = app_id_of(ledger.identity(index), attempt)
            full_id = runner.qualified_id(app_id, scheduler, search.cfg)
            handles[make_app_handle(scheduler, runner.name(), full_id)] = index
        existing = _existing(runner, handles)
        for handle, status in existing.items():
            found[handle] = _Job(handles[handle], status)
        left = [handles[handle] for handle in existing]
        attempt += 1
    return found


def _existing(runner: Runner, handles: Iterable[str]) -> dict[str, AppStatus]:
    """Return the handles of jobs that exist, with their statuses."""
    found = {}
    for handle, status in runner.status_many(list(handles)).items():
        if status is None:
            continue
        if status.state is AppState.UNKNOWN:
            raise SchedulerUnavailable(f"{handle}: {status.msg}")
        found[handle] = status
    return found
