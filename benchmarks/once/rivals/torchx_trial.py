"""A trial of Ax with Ax's own TorchXRunner, in a process that may be killed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ax.core.arm import Arm
from ax.core.experiment import Experiment
from ax.core.parameter import ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from ax.runners.torchx import TORCHX_APP_HANDLE, TORCHX_RUNNER, TorchXRunner
from torchx import specs

from transload_testing.adapter_driver import ChildJob


def defaults(child: ChildJob) -> None:
    """Run the trial and poll until it has ended, as in Ax's tutorial; another process begins
    anew.
    """
    child.log("begun")
    finish(child, *begin(child))


def run(child: ChildJob) -> None:
    """The same with care: the app's handle goes to a file at once, and a later process polls that
    app.

    Ax's own snapshot cannot be stored: the trial's metadata holds TorchX's runner.
    """
    child.log("begun")
    kept = Path(child.store)
    if not kept.exists():
        runner, trial = begin(child)
        kept.write_text(trial.run_metadata[TORCHX_APP_HANDLE])
    else:
        runner, trial = made(child)
        trial.mark_running(no_runner_required=True)
        trial.update_run_metadata(
            {TORCHX_APP_HANDLE: kept.read_text(), TORCHX_RUNNER: runner._torchx_runner}
        )
    finish(child, runner, trial)


def made(child: ChildJob) -> tuple[TorchXRunner, Any]:
    """Return a runner and a trial of one arm."""
    role = json.loads(child.app)["roles"][0]
    results = child.store + ".results"

    def component(x: float, tracker_base: str) -> specs.AppDef:
        words = {
            "entrypoint": role["entrypoint"],
            "args": role["args"],
            "env": {"TRANSLOAD_TRACKER_BASE": tracker_base},
        }
        return specs.AppDef("once", roles=[specs.Role("main", image="/", **words)])

    scheduler, cfg = {
        "local": ("local_cwd", {"log_dir": child.store + ".d"}),
        "slurm": ("slurm", {}),
    }[child.job.scheduler]
    runner = TorchXRunner(
        tracker_base=results, component=component, orchestrator=scheduler, cfg=cfg
    )
    space = SearchSpace([RangeParameter("x", ParameterType.FLOAT, 0, 1)])
    trial = Experiment(search_space=space, name="once", runner=runner).new_trial()
    trial.add_arm(Arm({"x": 0.5}))
    return runner, trial


def begin(child: ChildJob) -> tuple[TorchXRunner, Any]:
    """Run the trial."""
    runner, trial = made(child)
    trial.run()
    return runner, trial


def finish(child: ChildJob, runner: TorchXRunner, trial: Any) -> None:
    """Poll until the trial has ended; report the app's lines and its result."""
    while True:
        try:
            (status,) = runner.poll_trial_status([trial])
        except Exception as exc:
            child.finish("FAILED", error=exc)
            return
        if status.is_terminal:
            break
        time.sleep(0.2)
    for line in runner._torchx_runner.log_lines(trial.run_metadata[TORCHX_APP_HANDLE], "main", 0):
        child.log(line.rstrip("\n"))
    found = Path(child.store + ".results", "0.json")
    child.finish(status.name, results=json.loads(found.read_text()) if found.exists() else None)
