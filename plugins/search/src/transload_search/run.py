"""Run a search to its end in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from transload.pipelines import Asked, ExecutionOptions, Identity, LogSink, Step, interrupted
from transload.runner import Runner
from transload.schedulers import Stream
from transload.specs import AppState, AppStatus
from transload_search.ledger import SearchLedger
from transload_search.search import SearchFailed, SearchTrial
from transload_search.steps import STEPS_SECONDS


class SearchHooks(TypedDict, total=False):
    """What is called while a search runs.

    - ``sink_of``: trial → the sink for its log lines.
    - ``on_change``: called when a trial has started or ended.
    - ``on_progress``: called in a thread with the number of a trial and the status of its job, which
      says how far it is: at another whole percent, and at most once a second.
    - ``asked``: returns whether the end of the search was requested (see
      `transload.pipelines.Step.asked`).
    """

    sink_of: Callable[[SearchTrial], LogSink | None]
    on_change: Callable[[], None]
    on_progress: Callable[[int, AppStatus], None]
    asked: Asked


def run_search(
    ledger: SearchLedger,
    runner: Runner,
    options: ExecutionOptions | None = None,
    **hooks: Unpack[SearchHooks],
) -> dict[str, Any]:
    """Run a search to its end and return its summary (`SearchLedger.summary`).

    Called again after a crash with the same ledger, it continues. Trials that have ended do not run
    again, and it reattaches to the running ones.

    Args:
        ledger: the search and its tracker base.
        runner: submits and watches the jobs, as of `transload.pipelines.host_runner`.
        options: options for each trial's job. By default a cancelled trial runs again, and a failed
            one does not.
        hooks: called meanwhile.

    Raises:
        SearchFailed: if no trial has a value, or too many failed.
        StateUnknown: if a scheduler is unreachable for too long.
        SubmitError: if the submit of a trial failed.
        SpecError: if the app definition of a trial is wrong.
        ConfigError: if a scheduler, option or suggester is unknown.
    """
    return asyncio.run(run_search_async(ledger, runner, options, **hooks))


async def run_search_async(
    ledger: SearchLedger,
    runner: Runner,
    options: ExecutionOptions | None = None,
    **hooks: Unpack[SearchHooks],
) -> dict[str, Any]:
    """Run a search like `run_search`, without blocking the event loop.

    Cancelling the task cancels the running trials only if that was requested. With
    ``on_kill="detach"`` they always go on.
    """
    given = options or ExecutionOptions(resubmit_on=frozenset({AppState.CANCELLED}))
    running: dict[asyncio.Task[None], _TrialStep] = {}

    def start(trial: SearchTrial) -> None:
        step = _TrialStep(ledger, trial, given, runner, hooks)
        running[asyncio.create_task(_run(ledger, step))] = step

    try:
        waiting = await asyncio.to_thread(ledger.unfinished)
        while True:
            while len(running) < ledger.search.parallelism:
                if waiting:
                    trial = waiting.pop(0)
                else:
                    following = await asyncio.to_thread(ledger.next_trial)
                    if following is None:
                        break
                    trial = following
                start(trial)
            if "on_change" in hooks:
                hooks["on_change"]()
            if not running:
                return await asyncio.to_thread(ledger.finish)
            await _wait(ledger, running)
    except SearchFailed:  # a failed search is not continued
        for step in running.values():
            step.kill(asked=True)
        raise
    finally:
        await _end(running)


class _TrialStep(Step):
    """The job of a trial in this process."""

    host = "search"

    def __init__(
        self,
        ledger: SearchLedger,
        trial: SearchTrial,
        options: ExecutionOptions,
        runner: Runner,
        hooks: SearchHooks,
    ) -> None:
        known = ledger.known(trial.index)
        super().__init__(ledger.launch(trial), options, runner=runner, arguments=known)
        self.index = trial.index
        self._ledger = ledger
        self._hooks = hooks
        self._sink = hooks["sink_of"](trial) if "sink_of" in hooks else None
        self.hands_on_lines = self._sink is not None

    def identity(self) -> Identity:
        """Return whose job it is, which is the same for each process of the search."""
        return self._ledger.identity(self.index)

    def words(self) -> dict[str, Any]:
        """Return which trial of which search it is."""
        return {"name": self._ledger.name, "id": self._ledger.id, "trial": self.index}

    def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Hand on a line of the job's log."""
        if self._sink is not None:
            self._sink(role, replica, stream, line)

    def asked(self) -> bool | None:
        """Tell whether the end of the search was requested."""
        return self._hooks.get("asked", interrupted)()

    def changed(self, status: AppStatus) -> None:
        """Show how far the job is."""
        if "on_progress" in self._hooks and status.progress is not None:
            self._hooks["on_progress"](self.index, status)


async def _run(ledger: SearchLedger, step: _TrialStep) -> None:
    try:
        results = await step.run_async()
    except Exception as exc:
        handle = step.handle or ""
        if not await asyncio.to_thread(ledger.observe_error, step.index, exc, handle):
            raise
    else:
        await asyncio.to_thread(ledger.observe, step.index, results)


async def _wait(ledger: SearchLedger, running: dict[asyncio.Task[None], _TrialStep]) -> None:
    """Wait until a trial has ended, and end trials that do badly."""
    pause = None if ledger.search.early_stopping is None else STEPS_SECONDS
    ended: set[asyncio.Task[None]] = set()
    while not ended:
        ended, _ = await asyncio.wait(running, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        if pause is not None:
            by_index = {step.index: step for task, step in running.items() if task not in ended}
            for index in await asyncio.to_thread(ledger.to_stop, by_index):
                await asyncio.to_thread(by_index[index].cancel)
    for task in ended:
        del running[task]
    for task in ended:
        task.result()


async def _end(running: dict[asyncio.Task[None], _TrialStep]) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
