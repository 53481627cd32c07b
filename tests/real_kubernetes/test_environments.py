"""Packages on a real cluster whose pods reach no index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from transload.runner import Launch, Runner
from transload.specs import AppDef, AppState, CfgVal, Role
from transload_testing.packages import PackageIndex, package_index

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
PRINT = "import sys, tiny; print(tiny.VERSION, sys.prefix)"
UV = "import shutil; print(shutil.which('uv'))"
PLACE = "/opt/uv"

pytestmark = [
    pytest.mark.skipif(
        "REAL_CLUSTER" not in os.environ, reason="the cluster's node has no folder of this machine"
    ),
    pytest.mark.skipif(shutil.which("uv") is None, reason="the installer, uv, is not on PATH"),
]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index on this machine's loopback, where no pod reaches it."""
    with package_index(tmp_path / "index") as served:
        served.add("tiny", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
        served.add("tiny", "1.0", tag="cp311-cp311-manylinux_2_17_aarch64")
        served.be_the_only_one(monkeypatch)
        yield served


@pytest.fixture
def runner(namespace: str, transload_home: Path) -> Iterator[Runner]:
    """A runner on the real cluster."""
    from transload_kubernetes.scheduler import create_scheduler

    with Runner("tests", {"kubernetes": create_scheduler}) as made:
        yield made


def _overlay() -> str:
    """Return an overlay that gives the installing container uv, as the image has no pip."""
    words = ["uv", "run", "--no-project", "--offline", "--python", sys.executable, "python"]
    found = subprocess.run([*words, "-c", UV], capture_output=True, text=True, check=True)
    uv = os.path.realpath(found.stdout.strip())
    mount = {"name": "uv", "mountPath": f"{PLACE}/uv"}
    making = {
        "name": "transload-environment",
        "volumeMounts": [mount],
        "env": [{"name": "PATH", "value": f"/usr/bin:/bin:{PLACE}"}],
    }
    volume = {"name": "uv", "hostPath": {"path": uv, "type": "File"}}
    pods = {"initContainers": [making], "volumes": [volume]}
    return str(yaml.safe_dump({"spec": {"template": {"spec": pods}}}))


def _launch(index: PackageIndex, folder: Path, namespace: str, **cfg: CfgVal) -> Launch:
    file = folder / "requirements.txt"
    file.write_text(f"--index-url {index.url}\ntiny\n")
    role = Role("main", IMAGE, entrypoint="python", args=["-c", PRINT])
    role.env = {"UV_HTTP_RETRIES": "0"}
    own: dict[str, CfgVal] = {"namespace": namespace, "overlay": _overlay()}
    return Launch(
        app=AppDef("packages", [role]),
        scheduler="kubernetes",
        cfg={**own, "image_pull_policy": "IfNotPresent", **cfg},
        environment=str(file),
    )


def test_pods_that_reach_no_index(
    runner: Runner, namespace: str, index: PackageIndex, tmp_path: Path
) -> None:
    """The job fails, and says what to do."""
    job = _launch(index, tmp_path, namespace).plan(runner).submit()
    status = job.wait(timeout=120)
    assert status.state is AppState.FAILED, status
    assert "build an image that has the packages" in status.msg
    job.delete()
