"""Trials of a real Ax experiment. Ax has no place for a job's lines."""

from __future__ import annotations

from ax.core.arm import Arm
from ax.core.experiment import Experiment
from ax.core.parameter import ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from ax_trial import one_trial
from row import ENDLESS, ENGINES, Cell, cancelled, jobs, until

from transload.runner import get_runner
from transload_ax import TRANSLOAD_APP_HANDLE, TransloadRunner


def stop_one(engine: str) -> str:
    """Stop a trial whose job runs, as early stopping does; return how its app ended."""
    experiment = Experiment(
        SearchSpace([RangeParameter("lr", ParameterType.FLOAT, 0.0, 1.0)]),
        name="endless",
        runner=TransloadRunner(None, ENDLESS, scheduler=engine),
    )
    trial = experiment.new_trial()
    trial.add_arm(Arm({"lr": 0.5}))
    trial.run()
    app = trial.run_metadata[TRANSLOAD_APP_HANDLE].rpartition("/")[2]
    until(lambda: "RUNNING" in jobs("ax", engine, app), "the app runs")
    experiment.runner.stop(trial)
    return cancelled("ax", engine, app)


for engine in ENGINES:
    cell = Cell("Ax", engine)
    trial, accuracy = one_trial(engine)
    handle = trial.run_metadata[TRANSLOAD_APP_HANDLE]
    with get_runner() as runner:
        status = runner.status(handle)
    cell.also(
        cancel=stop_one(engine),
        retry="– (Ax tries another trial)",
        waiter="– (Ax polls, in its own process)",
    )
    cell.emit(handle, status.state.name if status else "", trial.status.name, accuracy, None)
