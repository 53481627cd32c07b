"""Ax's orchestrator, woken by the jobs themselves."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from ax.orchestration.orchestrator import Orchestrator

from transload.errors import SpecError
from transload_ax.runner import TransloadRunner

if TYPE_CHECKING:
    from ax.core.experiment import Experiment
    from ax.generation_strategy.generation_strategy import GenerationStrategy
    from ax.orchestration.orchestrator_options import OrchestratorOptions
    from ax.storage.sqa_store.structs import DBSettings

LONGEST_WAIT: Final = 1.0
"""Seconds after which metrics that grow while trials run are looked at again.

What has changed is stored then.
"""


class TransloadOrchestrator(Orchestrator):
    """Ax's orchestrator, woken by the jobs themselves where Ax sleeps between polls.

    Arguments are those of ``ax.orchestration.orchestrator.Orchestrator``. The runner must be a
    `TransloadRunner`.
    """

    def __init__(
        self,
        experiment: Experiment,
        generation_strategy: GenerationStrategy,
        options: OrchestratorOptions,
        db_settings: DBSettings | None = None,
        _skip_experiment_save: bool = False,
    ) -> None:
        super().__init__(
            experiment,
            generation_strategy,
            options,
            db_settings=db_settings,
            _skip_experiment_save=_skip_experiment_save,
        )
        self._limit_hours: float | None = None
        if not isinstance(self.runner, TransloadRunner):
            raise SpecError(f"runner: must be a TransloadRunner, not {type(self.runner).__name__}")

    def run_trials_and_yield_results(
        self,
        max_trials: int,
        ignore_global_stopping_strategy: bool = False,
        timeout_hours: float | None = None,
        idle_callback: Callable[[Orchestrator], None] | None = None,
    ) -> Generator[dict[str, Any], None, None]:
        """Run trials as Ax does. A timeout is kept to while trials hang, too."""
        self._limit_hours = timeout_hours
        yield from super().run_trials_and_yield_results(
            max_trials, ignore_global_stopping_strategy, timeout_hours, idle_callback
        )

    def wait_for_completed_trials_and_report_results(
        self, idle_callback: Callable[[Orchestrator], None] | None = None, force_refit: bool = False
    ) -> dict[str, Any]:
        """Wait until a trial has ended, or the search must.

        Jobs report their ends, and none is asked in between.
        """
        runner = self.runner
        assert isinstance(runner, TransloadRunner)
        while self.pending_trials and not self.poll_and_process_results():
            if self.should_abort_optimization(timeout_hours=self._limit_hours):
                break  # Ax asks again, and leaves
            if idle_callback is not None:
                idle_callback(self)
            runner.trials.jobs.wait(LONGEST_WAIT)
        if idle_callback is not None:
            idle_callback(self)
        return dict(self.report_results(force_refit=force_refit))
