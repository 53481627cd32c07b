"""Tasks of pipelines, run by KFP's own local runner: there is no KFP server in any registry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from row import ENDLESS, ENGINES, FAILING, Cell, cancelled, jobs, tried_again, until

from transload.runner import get_runner

PIPELINE = """
import json, sys
import kfp_pipeline
task = kfp_pipeline.run_here(sys.argv[1], sys.argv[2])
print(json.dumps([task.outputs["Output"], str(task.state.value)]))
"""
SHORT = """
import sys
from kfp import dsl, local
from transload_kfp import launcher_from_app
folder, engine, component, name = sys.argv[1:]
short = launcher_from_app(component, name=name, scheduler=engine, image="python:3.11")
@dsl.pipeline(name="short")
def pipeline():
    short().set_retry(1)
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=folder, raise_on_error=False)
pipeline()
"""


def short(engine: str, component: str, name: str) -> subprocess.Popen[bytes]:
    """Start a pipeline of one launcher, tried again once."""
    words = [os.environ["TRANSLOAD_HOME"] + "/pipelines", engine, component, name]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", SHORT, *words], start_new_session=True, **quiet)


for engine in ENGINES:
    cell = Cell("KFP", engine)
    command = [sys.executable, "-c", PIPELINE, os.environ["TRANSLOAD_HOME"] + "/pipelines", engine]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        sys.exit(f"KFP on {engine}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    handle, said = json.loads(done.stdout.splitlines()[-1])
    with get_runner() as runner:
        status, accuracy = runner.status(handle), runner.results(handle).value("accuracy", "final")
    endless, failing = short(engine, ENDLESS, "endless"), short(engine, FAILING, "failing")
    until(lambda each=engine: "RUNNING" in jobs("kfp", each, "endless"), "the app runs")
    os.killpg(endless.pid, signal.SIGTERM)
    for process in (endless, failing):
        process.wait(180)
    cell.also(
        cancel=cancelled("kfp", engine),
        retry=tried_again("kfp", engine),
        waiter="– (it waits in its task)",
    )
    cell.emit(
        handle,
        status.state.name if status else "",
        said,
        float(accuracy),
        done.stdout + done.stderr,
    )
