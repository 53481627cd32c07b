"""The names that Ax's runner for TorchX has, each used as its documentation does."""

from __future__ import annotations

from pathlib import Path

import pytest

from transload.runner import get_runner
from transload.specs import AppDef, AppState, Role


def trainer(
    x1: float, trial_idx: int, tracker_base: str, experiment_name: str, x2: float = 0.0
) -> AppDef:
    """Print its arguments.

    Args:
        x1: searched
        trial_idx: given where it is declared
        tracker_base: given where it is declared
        experiment_name: given where it is declared
        x2: constant
    """
    words = [str(x1), str(trial_idx), tracker_base, experiment_name, str(x2)]
    return AppDef("trainer", [Role("main", "/tmp", entrypoint="echo", args=words)])


def test_a_trial_is_a_job(tmp_path: Path, transload_home: Path) -> None:
    """The runner passes what the component declares, and gives state, handle and reason."""
    from ax.core import Arm, BatchTrial, Experiment, GeneratorRun, SearchSpace
    from ax.core.base_trial import TrialStatus
    from ax.core.parameter import ParameterType, RangeParameter

    from transload_ax import TRANSLOAD_APP_HANDLE, TRANSLOAD_TRACKER_BASE, TransloadRunner

    base = str(tmp_path / "base")
    runner = TransloadRunner(
        tracker_base=base,
        component=trainer,
        component_const_params={"x2": 1.5},
        scheduler="local",
        cfg={},
    )
    space = SearchSpace([RangeParameter("x1", ParameterType.FLOAT, 0.0, 1.0)])
    experiment = Experiment(space, name="mine", runner=runner)
    arm = GeneratorRun([Arm({"x1": 0.25})])
    trial = experiment.new_trial(arm).run()
    assert trial.run_metadata[TRANSLOAD_TRACKER_BASE] == base
    handle = trial.run_metadata[TRANSLOAD_APP_HANDLE]
    status = get_runner().wait(handle)
    assert status is not None and status.state is AppState.SUCCEEDED
    lines = list(get_runner().log_lines(handle, "main", 0))
    assert lines[0].strip() == f"0.25 0 {base} mine 1.5"
    assert runner.poll_trial_status([trial]) == {TrialStatus.COMPLETED: {0}}
    assert runner.stop(trial, reason="enough")["reason"] == "enough"
    with pytest.raises(ValueError, match="BatchTrial"):
        runner.run(BatchTrial(experiment))


def test_the_states_of_a_trial() -> None:
    """Each state of a job is a state of a trial."""
    from ax.core.base_trial import TrialStatus

    from transload_ax import APP_STATE_TO_TRIAL_STATUS

    assert APP_STATE_TO_TRIAL_STATUS == {
        AppState.UNSUBMITTED: TrialStatus.CANDIDATE,
        AppState.SUBMITTED: TrialStatus.STAGED,
        AppState.PENDING: TrialStatus.STAGED,
        AppState.RUNNING: TrialStatus.RUNNING,
        AppState.SUCCEEDED: TrialStatus.COMPLETED,
        AppState.CANCELLED: TrialStatus.ABANDONED,
        AppState.FAILED: TrialStatus.FAILED,
        AppState.UNKNOWN: TrialStatus.FAILED,
    }
