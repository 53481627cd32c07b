"""One experiment with a trial for each unit, all at once; polled by one process."""

from __future__ import annotations

import time
from pathlib import Path


class Host:
    """Ax in this process."""

    def __init__(self, folder: Path, engine: str) -> None:
        self._engine = engine

    def start(self) -> None:
        """Load Ax."""
        import ax  # noqa: F401

    def many(self, number: int, units: int) -> int:
        """Run so many; return how many ended well, each with its own result."""
        from ax.core.arm import Arm
        from ax.core.experiment import Experiment
        from ax.core.parameter import ParameterType, RangeParameter
        from ax.core.search_space import SearchSpace

        from transload_ax import TransloadMetric, TransloadRunner

        component = f"{Path(__file__).with_name('units.py')}:unit"
        experiment = Experiment(
            SearchSpace([RangeParameter("number", ParameterType.FLOAT, 0.0, float(units))]),
            name=f"load-{number}",
            metrics=[TransloadMetric("number")],
            runner=TransloadRunner(None, component, scheduler=self._engine),
        )
        for k in range(units):
            experiment.new_trial().add_arm(Arm({"number": float(k)})).run()
        while there := [
            trial for trial in experiment.trials.values() if not trial.status.is_terminal
        ]:
            for status, indices in experiment.runner.poll_trial_status(there).items():
                for trial in there:
                    if trial.index in indices and trial.status != status:
                        trial.mark_as(status)
            time.sleep(1)
        found = experiment.fetch_data().df
        return int((found["mean"] == found["trial_index"]).sum())

    def stop(self) -> None:
        """Nothing is left."""
