"""Find the jobs of a search's trials from any process, to cancel or delete them."""

from __future__ import annotations

from collections.abc import Iterable

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
    unfinished = [trial.index for trial in ledger.unfinished()]
    found = _submitted(ledger, runner, unfinished)
    return {handle: status for handle, status in found.items() if not status.is_terminal()}


def all_jobs(ledger: SearchLedger, runner: Runner) -> dict[str, AppStatus]:
    """Return the status of all jobs that exist, by handle.

    Arguments and errors as in `running_jobs`.
    """
    rows = ledger.summary()["trials"]
    found = _submitted(ledger, runner, [row["index"] for row in rows])
    # the search may have gone on with another scheduler
    others = [row["handle"] for row in rows if row["handle"] and row["handle"] not in found]
    return {**found, **_existing(runner, others)}


def _submitted(ledger: SearchLedger, runner: Runner, trials: Iterable[int]) -> dict[str, AppStatus]:
    """Return the status of the jobs of trials, by handle. A cancelled trial may have several."""
    search = ledger.search
    scheduler = search.scheduler or runner.settings.scheduler
    found: dict[str, AppStatus] = {}
    attempt = 0
    left = list(trials)
    while left:
        handles: dict[str, int] = {}
        for index in left:
            app_id = app_id_of(ledger.identity(index), attempt)
            full_id = runner.qualified_id(app_id, scheduler, search.cfg)
            handles[make_app_handle(scheduler, runner.name(), full_id)] = index
        existing = _existing(runner, handles)
        found.update(existing)
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
