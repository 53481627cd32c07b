"""A task of a pipeline, run by KFP's own local runner: there is no KFP server in any registry."""

from __future__ import annotations

import os
import time

import row
from kfp_pipeline import run_here

from transload.runner import get_runner

began = time.monotonic()
task = run_here(os.environ["TRANSLOAD_HOME"] + "/pipelines")
seconds = time.monotonic() - began
handle = task.outputs["Output"]
with get_runner() as runner:
    status, accuracy = runner.status(handle), runner.results(handle).value("accuracy", "final")
row.emit("KFP", handle, status.state.name if status else "", str(task.state.value), float(accuracy), seconds)
