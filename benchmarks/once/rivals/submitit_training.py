"""The training of `interruptions.py` with submitit: a callable with a method ``checkpoint``, as its
documentation has it, which finds its latest checkpoint when it is started again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import submitit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import training

from transload_testing.adapter_driver import ChildJob


class Training:
    """What submitit sends to the node.

    Args:
        ledger: where the data are, and where steps are noted.
        unit: the unit of work.
        every: steps between two checkpoints.
        folder: for its checkpoints.
    """

    def __init__(self, ledger: str, unit: str, every: int, folder: str) -> None:
        self.ledger = ledger
        self.unit = unit
        self.every = every
        self.folder = folder

    def __call__(self) -> str | None:
        """Train from the latest checkpoint on."""
        os.environ["TRANSLOAD_CHECKPOINT_DIR"] = self.folder
        checkpoints = training.Heedless(0, self.every)
        return training.train(Path(self.ledger), self.unit, checkpoints, self.every)

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Return what is to run after submitit's own notice."""
        return submitit.helpers.DelayedSubmission(self)


def run(child: ChildJob) -> None:
    """Submit the training, and wait for it."""
    child.log("begun")
    _, ledger, unit, every, _ = json.loads(child.app)["roles"][0]["args"]
    folder = Path(child.store + ".checkpoints")
    folder.mkdir(parents=True)
    executor = submitit.AutoExecutor(folder=child.store + ".d", cluster="slurm")
    executor.update_parameters(timeout_min=10, mem_gb=0.4, cpus_per_task=1)
    job = executor.submit(Training(ledger, unit, int(every), str(folder)))
    try:
        weights = job.result()
    except Exception as exc:
        child.finish("FAILED", error=exc)
        return
    child.finish("SUCCEEDED", results={"weights": weights})
