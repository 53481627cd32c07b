"""Deployments as the page shows them: by ``prefect.yaml`` and by ``flow.deploy()``, run by a
worker.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_worker import _soon

from transload.specs import Resource
from transload_prefect.worker import AppJobConfiguration

FLOW = """
from prefect import flow

@flow
def nightly():
    print("hello from the flow")
    return 1
"""


@pytest.mark.slow
@pytest.mark.timeout(600)  # two flow runs in processes of their own, and Prefect's command line
async def test_deployments(host: Any, tmp_path: Path, script: Callable[[str], Any]) -> None:
    """Both run to their end on the pool's defaults, and what they print is in their logs."""
    from transload_prefect import TransloadWorker

    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "reference" / "prefect-work-pools.md").read_text(encoding="utf-8")
    yaml, code = re.search(
        r"```yaml\n(.*?)```\n\n`flow.deploy.*?```python\n(.*?)```", page, re.DOTALL
    ).groups()  # type: ignore[union-attr]
    Path(tmp_path, "flow.py").write_text(FLOW)
    Path(tmp_path, "prefect.yaml").write_text(yaml.replace("/shared/project", str(tmp_path)))
    template = TransloadWorker.get_default_base_job_template()
    host.post("/work_pools/", name="cluster", type="transload", base_job_template=template)
    made = script(code.replace("/shared/project", str(tmp_path)))
    by_call = made.start()
    by_file = made.start(sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all")
    await _soon(lambda: None not in (by_call.poll(), by_file.poll()))
    assert (by_call.returncode, by_file.returncode) == (0, 0), made.log.read_text()[-3000:]
    found = host.post("/deployments/filter", deployments={"name": {"any_": ["by-file", "by-call"]}})
    runs = [host.post(f"/deployments/{each['id']}/create_flow_run")["id"] for each in found]
    assert len(runs) == 2
    async with TransloadWorker(work_pool_name="cluster", name="one") as worker:
        await worker.get_and_submit_flow_runs()
        for run in runs:
            await _soon(
                lambda run=run: (
                    host.flow_run(run)["state_type"] in ("COMPLETED", "FAILED", "CRASHED")
                ),
                200,
            )
            await _soon(
                lambda run=run: (
                    "flow/0 hello from the flow" in [each["message"] for each in host.logs(run)]
                )
            )
        await _soon(lambda: not worker._submitting_flow_run_ids)
    assert {host.flow_run(each)["state_type"] for each in runs} == {"COMPLETED"}


def test_the_example_of_a_work_pool(
    host: Any, tmp_path: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """A flow run of the example's pool and deployment is a job for Slurm, as both of these say."""
    examples = Path(__file__).parents[2] / "examples" / "prefect"
    for name in ("flow.py", "prefect.yaml"):
        shutil.copy(examples / name, tmp_path)
    template = json.loads((examples / "slurm-pool.json").read_text(encoding="utf-8"))
    pool = "example"
    host.post("/work_pools/", name=pool, type="transload", base_job_template=template)
    deploy = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--pool", pool]
    made = script("")
    process = made.start(*deploy)
    eventually(lambda: process.poll() is not None, 100)
    assert process.returncode == 0, made.log.read_text()[-3000:]
    found = host.post("/deployments/filter", deployments={"name": {"any_": ["digits"]}})
    (deployment,) = [each for each in found if each["work_pool_name"] == pool]
    (step,) = deployment["pull_steps"]
    assert step["prefect.deployments.steps.set_working_directory"]["directory"] == str(tmp_path)
    job = asyncio.run(
        AppJobConfiguration.from_template_and_values(template, deployment["job_variables"])
    )
    assert (job.scheduler, job.cfg) == ("slurm", {"partition": "cpu"})
    app = job.to_app()
    assert app.timeout == 3600
    assert app.roles[0].resource == Resource(cpu=1, gpu=0, memMB=2000)
