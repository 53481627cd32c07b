"""Deployments are made by ``prefect.yaml`` and ``flow.deploy()``, and run by a worker."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from test_worker import _soon

from transload.specs import Resource
from transload_prefect.variables import AppJobConfiguration

DOCS = Path(__file__).parents[2] / "docs"
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

    page = (DOCS / "reference" / "prefect-work-pools.md").read_text(encoding="utf-8")
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


def _commands(page: str, test: str) -> list[list[str]]:
    """Return the words of the commands of the page's block that names a test."""
    _, _, text = page.partition(f"test_deploy.py::{test} -->")
    block = text.partition("```console\n")[2].partition("```")[0]
    return [shlex.split(line.removeprefix("$ ")) for line in block.splitlines()]


@pytest.mark.slow  # Prefect's command line, twice
def test_a_work_pool_is_brought_up_to_date(
    host: Any, tmp_path: Path, script: Callable[[str], Any], eventually: Any
) -> None:
    """A pool of an earlier template has today's variables after the two commands of the page."""
    variables = {"type": "object", "properties": {"command": {"type": "string"}}}
    earlier = {"job_configuration": {"command": "{{ command }}"}, "variables": variables}
    pool = f"old-{uuid4().hex[:6]}"
    host.post("/work_pools/", name=pool, type="transload", base_job_template=earlier)
    page = (DOCS / "reference" / "prefect-work-pools.md").read_text(encoding="utf-8")
    made = script("")
    for words in _commands(page, "test_a_work_pool_is_brought_up_to_date"):
        typed = [str(tmp_path / word) if word.endswith(".json") else word for word in words[1:]]
        typed = [pool if word == "cluster" else word for word in typed]
        process = made.start(sys.executable, "-m", "prefect", "--no-prompt", *typed)
        eventually(lambda process=process: process.poll() is not None, 100)
        assert process.returncode == 0, made.log.read_text()[-3000:]
    (found,) = host.post("/work_pools/filter", work_pools={"name": {"any_": [pool]}})
    assert found["base_job_template"]["job_configuration"]["mem"] == "{{ mem }}"


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
    assert app.roles[0].resource == Resource(cpu=1, gpu=0, memMB=2048)
