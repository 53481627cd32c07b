"""Ax's orchestrator, woken by the apps themselves."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from ax.orchestration.orchestrator import Orchestrator

from transload.errors import SpecError
from transload_ax.runner import TransloadRunner

LONGEST_WAIT: Final = 1.0
"""Seconds after which metrics that grow while trials run are looked at again."""


class TransloadOrchestrator(Orchestrator):
    """Ax's orchestrator, woken by the apps themselves where Ax sleeps between polls.

    Arguments are those of ``ax.orchestration.orchestrator.Orchestrator``; the runner must be a `TransloadRunner`.

    Args:
        on_change: called when a trial was submitted, or has changed.
        next_idle: returns seconds after which ``idle_callback`` wants to be called again; None: whenever.
    """

    def __init__(
        self,
        *args: Any,
        on_change: Callable[[], None] | None = None,
        next_idle: Callable[[], float | None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._on_change = on_change
        self._next_idle = next_idle
        self._limit_hours: float | None = None
        runner = self.runner
        if not isinstance(runner, TransloadRunner):
            raise SpecError(f"runner: must be a TransloadRunner, not {type(runner).__name__}")

    def run_trials(self, *args: Any, **kwargs: Any) -> dict[int, dict[str, Any]]:
        """Submit trials; see Ax."""
        metadata = super().run_trials(*args, **kwargs)
        self._changed()
        return metadata

    def poll_and_process_results(self, poll_all_trial_statuses: bool = False) -> bool:
        """Look at all trials once; see Ax."""
        before = {trial.index: trial.status for trial in self.trials}
        moved = super().poll_and_process_results(poll_all_trial_statuses)
        if moved or before != {trial.index: trial.status for trial in self.trials}:
            self._changed()
        return moved

    def run_trials_and_yield_results(
        self,
        max_trials: int,
        ignore_global_stopping_strategy: bool = False,
        timeout_hours: float | None = None,
        idle_callback: Callable[[Orchestrator], None] | None = None,
    ) -> Generator[dict[str, Any], None, None]:
        """Run trials; see Ax. A timeout is kept to while trials hang, too."""
        self._limit_hours = timeout_hours
        yield from super().run_trials_and_yield_results(
            max_trials, ignore_global_stopping_strategy, timeout_hours, idle_callback
        )

    def wait_for_completed_trials_and_report_results(
        self, idle_callback: Callable[[Orchestrator], None] | None = None, force_refit: bool = False
    ) -> dict[str, Any]:
        """Wait until a trial has ended, or the search must; the apps tell, nothing is asked in between."""
        apps = self._transload_runner.trials.apps
        while self.pending_trials and not self.poll_and_process_results():
            if self.should_abort_optimization(timeout_hours=self._limit_hours):
                break  # Ax asks again, and leaves
            if idle_callback is not None:
                idle_callback(self)
            due = self._next_idle() if self._next_idle is not None else None
            apps.wait(LONGEST_WAIT if due is None else min(due, LONGEST_WAIT))
        if idle_callback is not None:
            idle_callback(self)
        return dict(self.report_results(force_refit=force_refit))

    @property
    def _transload_runner(self) -> TransloadRunner:
        runner = self.runner
        assert isinstance(runner, TransloadRunner)
        return runner

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()
