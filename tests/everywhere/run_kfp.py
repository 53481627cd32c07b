"""Tasks of pipelines, run by KFP's own local runner: there is no KFP server in any registry."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from row import ENGINES, Cell

from transload.runner import get_runner

PIPELINE = """
import json, sys
import kfp_pipeline
task = kfp_pipeline.run_here(sys.argv[1], sys.argv[2])
print(json.dumps([task.outputs["Output"], str(task.state.value)]))
"""
for engine in ENGINES:
    cell = Cell("KFP", engine)
    command = [sys.executable, "-c", PIPELINE, os.environ["TRANSLOAD_HOME"] + "/pipelines", engine]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        sys.exit(f"KFP on {engine}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    handle, said = json.loads(done.stdout.splitlines()[-1])
    with get_runner() as runner:
        status, accuracy = runner.status(handle), runner.results(handle).value("accuracy", "final")
    cell.emit(handle, status.state.name if status else "", said, float(accuracy), done.stdout + done.stderr)
