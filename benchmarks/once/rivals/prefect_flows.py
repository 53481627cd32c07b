"""One flow for each tool: the same job, started as that tool's manual says. As a program: deploys
it.
"""

from __future__ import annotations

import json
import os
import shlex
import uuid
from pathlib import Path

from prefect import flow, task

RETRIES = {"retries": 3, "retry_delay_seconds": 1}


def transload(app, scheduler, **_):
    """Ours."""
    from transload_prefect import app_task

    return app_task(app, scheduler=scheduler, **RETRIES)().to_dict()


def shell(command, results, **_):
    """prefect-shell: the job is a child of the flow run's process."""
    from prefect_shell import ShellOperation

    ShellOperation(
        commands=[command], env={"TRANSLOAD_TRACKER_BASE": results}, log_prefix=None
    ).run()
    return json.loads(Path(results, "0.json").read_text())


def kubernetes_job(command, results, unit, name="", **_):
    """prefect-kubernetes: a Job with a name of its own; its lines are the log."""
    from prefect_kubernetes import KubernetesJob

    words = ["python3", *shlex.split(command)[1:]]
    folders = {"tests": str(Path(__file__).parents[1]), "ledger": os.environ["ONCE_LEDGER"]}
    container = {
        "name": "main",
        "image": "transload-test:1",
        "command": words,
        "env": [{"name": "TRANSLOAD_TRACKER_BASE", "value": results}],
        "volumeMounts": [{"name": each, "mountPath": path} for each, path in folders.items()],
    }
    volumes = [{"name": each, "hostPath": {"path": path}} for each, path in folders.items()]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": (name or unit).replace("_", "-")},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    run = KubernetesJob(v1_job=manifest, namespace=os.environ["ONCE_NAMESPACE"]).trigger()
    run.wait_for_completion(print)
    return json.loads(Path(results, "0.json").read_text())


def kubernetes_job_defaults(**given):
    """The same, with a name of each try."""
    return kubernetes_job(**given, name=f"job-{uuid.uuid4().hex[:8]}")


@flow(name="once", log_prints=True)
def once(tool: str, unit: str, app: str, scheduler: str, command: str, results: str) -> None:
    """Run the job with a tool; hand on what it gave."""
    given = {
        "app": app,
        "scheduler": scheduler,
        "command": command,
        "results": results,
        "unit": unit,
    }
    function = globals().get(tool) or globals()[tool.removesuffix("_defaults")]
    if tool == "transload":
        value = function(**given)
    else:
        again = {} if tool.endswith("_defaults") else {**RETRIES, "persist_result": True}
        value = task(function, log_prints=True, **again)(**given)
    aside = Path(results, f".{uuid.uuid4().hex}")
    aside.write_text(json.dumps(value))
    aside.rename(Path(results, "given.json"))


if __name__ == "__main__":
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="once", type="process"))
    here = Path(__file__)
    once.from_source(source=str(here.parent), entrypoint=f"{here.name}:once").deploy(
        name="once", work_pool_name="once", build=False, push=False
    )
