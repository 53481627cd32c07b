"""What a trial costs over pure Ax with a bare subprocess, in the same run: ``ax.py [--trials 30]``;
Sobol, JSON.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from measure import figure, interleaved, report

sys.path.pop(0)  # this file is named like the package that it measures
warnings.simplefilter("ignore")

import pandas as pd  # noqa: E402
from ax.core.data import Data  # noqa: E402
from ax.core.experiment import Experiment  # noqa: E402
from ax.core.metric import Metric  # noqa: E402
from ax.core.runner import Runner  # noqa: E402
from ax.core.trial_status import TrialStatus  # noqa: E402
from ax.orchestration.orchestrator import Orchestrator, OrchestratorOptions  # noqa: E402
from ax.utils.common.result import Ok  # noqa: E402

from transload_ax import make_experiment, run_experiment  # noqa: E402
from transload_ax.spaces import optimization, search_space, strategy  # noqa: E402
from transload_search import Objective  # noqa: E402

SPACE = ["x1:float:-10:10", "x2:float:-10:10"]


class BareRunner(Runner):
    """Starts the same program without anything around it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def run(self, trial: Any) -> dict[str, Any]:
        """Start it."""
        values = trial.arm.parameters
        command = [
            sys.executable,
            "-m",
            "transload.components.programs.booth_main",
            "--x1",
            str(values["x1"]),
            "--x2",
        ]
        command += [
            str(values["x2"]),
            "--trial_idx",
            str(trial.index),
            "--tracker_base",
            self.folder,
        ]
        self.processes[trial.index] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        return {}

    def poll_trial_status(self, trials: Any) -> dict[TrialStatus, set[int]]:
        """Look at it, a hundredth of a second apart."""
        time.sleep(0.01)
        found: dict[TrialStatus, set[int]] = {}
        for trial in trials:
            code = self.processes[trial.index].poll()
            status = (
                TrialStatus.RUNNING
                if code is None
                else TrialStatus.FAILED
                if code
                else TrialStatus.COMPLETED
            )
            found.setdefault(status, set()).add(trial.index)
        return found


class BareMetric(Metric):
    """Reads the same result."""

    def fetch_trial_data(self, trial: Any, **kwargs: Any) -> Any:
        """Return it."""
        import json

        text = Path(trial.experiment.runner.folder, f"{trial.index}.json").read_text()
        row = {
            "arm_name": trial.arm.name,
            "trial_index": trial.index,
            "metric_name": self.name,
            "sem": 0.0,
        }
        row |= {"metric_signature": self.signature, "mean": json.loads(text)["results"][self.name]}
        return Ok(Data(df=pd.DataFrame.from_records([row])))


def bare(trials: int, parallel: int) -> float:
    """Return the seconds per trial of pure Ax."""
    with tempfile.TemporaryDirectory() as folder:
        metric = BareMetric("booth_eval", lower_is_better=True)
        aim = optimization([Objective(metric.name)], (), {metric.name: metric})
        runner = BareRunner(folder)
        experiment = Experiment(
            search_space(SPACE),
            name="bare",
            metrics=[metric],
            optimization_config=aim,
            runner=runner,
        )
        options = OrchestratorOptions(
            max_pending_trials=parallel,
            init_seconds_between_polls=0,
            min_seconds_before_poll=0,
            logging_level=40,
        )
        began = time.perf_counter()
        Orchestrator(experiment, strategy("random_search", 1), options).run_n_trials(trials)
        return (time.perf_counter() - began) / trials


def ours(trials: int, parallel: int) -> float:
    """Return the seconds per trial of `run_experiment`, with a snapshot after each change."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = make_experiment("utils.booth", SPACE, "booth_eval", folder)
        began = time.perf_counter()
        plan = strategy("random_search", 1)
        run_experiment(
            experiment, trials, parallel, generation_strategy=plan, snapshot=f"{folder}/kept.json"
        )
        return (time.perf_counter() - began) / trials


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    # components say "python": both sides shall run this one
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="tl-", ignore_cleanup_errors=True) as home:
        os.environ["TRANSLOAD_HOME"] = home
        report(measure(given.trials, given.rounds), peer="Ax's orchestrator with bare subprocesses")


def measure(trials: int, rounds: int) -> list[dict[str, Any]]:
    """Return the rows, for one trial at once and for four."""
    ours(2, 2), bare(2, 2)  # imports
    rows = []
    for parallel in (1, 4):
        mine, peer = interleaved(
            rounds,
            lambda parallel=parallel: ours(trials, parallel),
            lambda parallel=parallel: bare(trials, parallel),
        )
        rows.append(
            figure(f"one trial, {parallel} at once", "s", mine, peer, target=1.2, trials=trials)
        )
    return rows


if __name__ == "__main__":
    main()
