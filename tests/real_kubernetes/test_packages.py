"""Pods of a real cluster install a job's packages by the uv of their image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Launch, Runner
from transload.schedulers.environments import uv_here
from transload.specs import AppDef, AppState, BindMount, Role
from transload_testing.packages import package_index

pytestmark = pytest.mark.skipif(
    "REAL_CLUSTER" not in os.environ, reason="pods see no folder of this machine"
)
IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
CFG: dict[str, Any] = {"image_pull_policy": "IfNotPresent"}
PRINT = "import tiny; print(tiny.VERSION)"


@pytest.mark.parametrize(
    ("has_uv", "state", "says"),
    [
        (True, AppState.SUCCEEDED, "1.5"),
        (False, AppState.FAILED, "COPY --from="),
    ],
)
def test_a_program_finds_its_packages(
    namespace: str,
    transload_home: Path,
    tmp_path: Path,
    has_uv: bool,
    state: AppState,
    says: str,
) -> None:
    """Each pod installs them before its program starts, and an image without uv is told how to get it."""
    from transload_kubernetes.scheduler import create_scheduler

    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with package_index(wheels) as index:
        index.add("tiny", "1.5")
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("tiny==1.5\n")
    role = Role("main", IMAGE, entrypoint="python", args=["-c", PRINT], num_replicas=2)
    role.env = {"UV_OFFLINE": "1", "UV_FIND_LINKS": "/wheels"}
    role.mounts = [BindMount(str(wheels / "simple" / "tiny"), "/wheels", read_only=True)]
    if has_uv:
        role.mounts.append(BindMount(uv_here(), "/usr/local/bin/uv", read_only=True))
    cfg = {**CFG, "namespace": namespace}
    launch = Launch(
        app=AppDef("packages", [role]), scheduler="kubernetes", cfg=cfg, environment=str(wanted)
    )
    with Runner("tests", {"kubernetes": create_scheduler}) as runner:
        job = runner.job(runner.run(launch))
        status = job.wait(timeout=150)
        shown = [[line.rstrip() for line in job.logs("main", k)] for k in (0, 1)]
        assert status.state is state, shown
        assert any(says in line for lines in shown for line in lines)
        runner.delete(job.handle)
