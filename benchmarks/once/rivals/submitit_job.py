"""submitit on the same Slurm: the command as a function, in a process that may be killed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import submitit

from transload_testing.adapter_driver import ChildJob


def work(command: list[str], results: str) -> dict[str, object]:
    """What runs on the node."""
    subprocess.run(command, check=True, env={**os.environ, "TRANSLOAD_TRACKER_BASE": results})
    return dict(json.loads(Path(results, "0.json").read_text())["results"])


def defaults(child: ChildJob) -> None:
    """Submit and wait, as on submitit's first page."""
    child.log("begun")
    finish(child, submit(child))


def run(child: ChildJob) -> None:
    """The same with care: the job's id goes to a file at once, and a later process waits for that
    job.
    """
    child.log("begun")
    kept = Path(child.store)
    if kept.exists():
        job = submitit.SlurmJob(folder=child.store + ".d", job_id=kept.read_text(), tasks=[0])
    else:
        job = submit(child)
        kept.write_text(job.job_id)
    finish(child, job)


def submit(child: ChildJob) -> submitit.Job:
    """Submit the job."""
    role = json.loads(child.app)["roles"][0]
    executor = submitit.AutoExecutor(folder=child.store + ".d", cluster="slurm")
    executor.update_parameters(timeout_min=10, stderr_to_stdout=True)
    return executor.submit(work, [role["entrypoint"], *role["args"]], child.store + ".results")


def finish(child: ChildJob, job: submitit.Job) -> None:
    """Wait for a job; report its lines and its result."""
    try:
        result = job.result()
    except Exception as exc:
        child.finish("FAILED", error=exc)
        return
    for line in (job.stdout() or "").splitlines():
        child.log(line)
    child.finish("SUCCEEDED", results=result)
