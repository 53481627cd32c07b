"""Do the steps of a search that runs as steps of an orchestrator.

Each round is a suggestion and its trials, each a step of its own. Between them nothing travels but
the search, its tracker base, and trials as ``{"index": …, "parameters": {…}}``. Everything else is
in the ledger. So each step may be tried again, also by another process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from transload.errors import TransloadError
from transload_search.progress import parameters_text
from transload_search.search import SearchFailed

if TYPE_CHECKING:
    from transload.pipelines import Step
    from transload.runner import AppResults
    from transload_search.ledger import SearchLedger

STEPS_SECONDS: Final = 1.0
"""Longest pause between two reads of the running trials' steps, if they may be stopped early."""


def suggest_round(
    ledger: SearchLedger, number: int, say: Callable[[str], object]
) -> list[dict[str, Any]]:
    """Return the trials of a round, the same ones at each call, or none after the last trial.

    Args:
        ledger: the search.
        number: the round, from 0.
        say: writes a line into the log of the orchestrator's step.

    Raises:
        SearchFailed: if too many trials have failed, or it is not known how a trial of the round
            before has ended.
    """
    if number:
        check_round(ledger, number - 1)
    trials = ledger.suggest(number)
    for trial in trials:
        say(f"trial {trial.index}: {parameters_text(trial.parameters)}")
    return [asdict(trial) for trial in trials]


def check_round(ledger: SearchLedger, number: int) -> None:
    """Refuse to go on while a round was not run, or it is not known how a trial of it has ended.

    Raises:
        SearchFailed: naming the round, or the trials.
    """
    trials = ledger.suggested(number)
    if trials is None:
        raise SearchFailed(f"search: round {number} was not run: clear its tasks")
    unknown = [str(trial.index) for trial in trials if ledger.ended(trial.index) is None]
    if unknown:
        raise SearchFailed(
            f"search: it is not known how trial {', '.join(unknown)} ended: its task was killed, "
            "or its scheduler was out of reach; clear that task to go on"
        )


def run_trial(ledger: SearchLedger, index: int, step: Step) -> AppResults:
    """Run the job of a trial to its end, or reattach to it, and record how it ended.

    Args:
        ledger: the search.
        index: the trial.
        step: of the orchestrator. If it is killed, that is no end of the trial.

    Raises:
        TransloadError: the error of `Step.run`. Whether the trial has failed says
            `SearchLedger.ended`.
    """
    try:
        with stopped_early(ledger, index, step.cancel):
            results = step.run()
    except TransloadError as exc:
        if not step.killed:
            ledger.observe_error(index, exc, step.handle or "")
        raise
    ledger.observe(index, results)
    return results


@contextmanager
def stopped_early(ledger: SearchLedger, index: int, cancel: Callable[[], object]) -> Iterator[None]:
    """Within this context, end a trial early if it does badly and the search has early stopping.

    Args:
        ledger: the search.
        index: the trial.
        cancel: ends its job. It may be called several times.
    """
    if ledger.search.early_stopping is None:
        yield
        return
    over = threading.Event()

    def look() -> None:
        while not over.wait(STEPS_SECONDS):
            try:
                if ledger.to_stop([index]):
                    cancel()
            except Exception as exc:
                logging.getLogger("transload_search").warning(
                    "trial %d: its steps cannot be read: %s", index, exc
                )

    watcher = threading.Thread(target=look, name=f"transload-steps-{index}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
