"""What a release of Kubeflow Pipelines' launcher is made by, and what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from kfp import components

ROOT = Path(__file__).parents[2]


def _steps() -> list[dict[str, Any]]:
    """Return the steps of the job that builds a release."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    steps: list[dict[str, Any]] = workflow["jobs"]["build"]["steps"]
    return steps


def test_the_launcher_of_a_release(tmp_path: Path) -> None:
    """The workflow's own line writes a component with a command as its input, which KFP loads.

    Its task installs the version of the tag.
    """
    (tmp_path / ".ci").symlink_to(ROOT / ".ci")
    texts = [step.get("run", "") for step in _steps()]
    (lines,) = [text.splitlines() for text in texts if "kfp_launcher.py" in text]
    folder = Path(sys.executable).parent
    environment = {
        **os.environ,
        "GITHUB_REF_NAME": "v1.2.3",
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", lines[-1]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = tmp_path / "transload-launcher.yaml"
    inputs = components.load_component_from_file(str(made)).component_spec.inputs
    assert {"args", "image", "num_replicas", "transload_key"} <= set(inputs)
    assert all(each.optional for each in inputs.values())
    spec, _ = yaml.safe_load_all(made.read_text(encoding="utf-8"))
    (executor,) = spec["deploymentSpec"]["executors"].values()
    command = " ".join(executor["container"]["command"])
    assert "transload-kfp==1.2.3 transload-kubernetes==1.2.3" in command
