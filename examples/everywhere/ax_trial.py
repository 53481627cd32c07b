"""The job as a trial of an Ax experiment: it reports as everywhere, and the metric finds it."""

from __future__ import annotations

import time

from ax.core.arm import Arm
from ax.core.experiment import Experiment
from ax.core.parameter import ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from ax.core.trial import Trial
from job import ARGUMENTS, COMPONENT

from transload_ax import TransloadMetric, TransloadRunner


def one_trial(scheduler: str = "local", lr: float = 0.5) -> tuple[Trial, float]:
    """Run one trial to its end; return it, and its accuracy.

    Args:
        scheduler: where the job runs
        lr: the one parameter of the search space
    """
    runner = TransloadRunner(None, COMPONENT, ARGUMENTS, scheduler)
    experiment = Experiment(
        SearchSpace([RangeParameter("lr", ParameterType.FLOAT, 0.05, 1.0)]),
        name="search",
        metrics=[TransloadMetric("accuracy", lower_is_better=False)],
        runner=runner,
    )
    trial = experiment.new_trial()
    trial.add_arm(Arm({"lr": lr}))
    trial.run()
    while not trial.status.is_terminal:
        time.sleep(0.2)
        for status, indices in runner.poll_trial_status([trial]).items():
            if trial.index in indices and status != trial.status:
                trial.mark_as(status)
    (mean,) = experiment.fetch_data().df["mean"]
    return trial, float(mean)


if __name__ == "__main__":
    print(one_trial())
