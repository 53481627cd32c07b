"""A search run to its end by one process, for hosts without stages of their own to spread it over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transload.errors import AppFailed, TransloadTimeout
from transload.specs import AppState

if TYPE_CHECKING:
    from transload.pipelines import ExecutionOptions, Identity, LogSink
    from transload.runner import Runner
    from transload_search.ledger import SearchLedger
    from transload_search.search import SearchTrial


def run_search(
    ledger: SearchLedger,
    runner: Runner,
    identity: Identity,
    options: ExecutionOptions | None = None,
    *,
    sink_of: Callable[[SearchTrial], LogSink | None] | None = None,
) -> dict[str, Any]:
    """Run a search to its end and return its summary (`SearchLedger.summary`).

    Run again after a crash, with the same ledger and identity, it goes on: trials that ended are not run again, those
    that run are attached to.

    Args:
        ledger: the search and its tracker base.
        runner: submits and asks; see `host_runner`.
        identity: of the search; each trial's is made from it.
        options: for each trial's app.
        sink_of: trial → where its log lines go.

    Raises:
        StateUnknown: if a scheduler is out of reach for too long.
        SubmitError: if a trial was not taken.
        SpecError: if a trial's app is wrong.
        ConfigError: for an unknown scheduler, option or suggester.
    """
    import asyncio

    return asyncio.run(run_search_async(ledger, runner, identity, options, sink_of=sink_of))


async def run_search_async(
    ledger: SearchLedger,
    runner: Runner,
    identity: Identity,
    options: ExecutionOptions | None = None,
    *,
    sink_of: Callable[[SearchTrial], LogSink | None] | None = None,
) -> dict[str, Any]:
    """Do what `run_search` does, without blocking the event loop. Cancelling the task cancels the running trials."""
    import asyncio

    from transload.pipelines import AppLost, Execution

    async def run(trial: SearchTrial) -> None:
        execution = Execution(
            runner,
            ledger.launch(trial),
            replace(identity, key=(*identity.key, f"trial-{trial.index}")),
            options,
            sink=sink_of(trial) if sink_of is not None else None,
            known={"trial_idx": trial.index},
        )
        try:
            results = await execution.run_async()
        except (AppFailed, AppLost, TransloadTimeout) as exc:
            state = execution.status.state if execution.status is not None else AppState.FAILED
            handle, reason = execution.handle or "", str(exc)
            await asyncio.to_thread(ledger.observe, trial.index, None, state=state, handle=handle, reason=reason)
        else:
            await asyncio.to_thread(ledger.observe, trial.index, results)

    number = 0
    while trials := await asyncio.to_thread(ledger.suggest, number):
        waiting = [trial for trial in trials if ledger.ended(trial.index) is None]
        try:
            async with asyncio.TaskGroup() as group:
                for trial in waiting:
                    group.create_task(run(trial))
        except ExceptionGroup as exc:
            raise exc.exceptions[0] from exc
        number += 1
    return await asyncio.to_thread(ledger.finish)
