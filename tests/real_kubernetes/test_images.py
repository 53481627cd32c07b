"""Workspaces as layers of images, pulled by a real node."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from transload.runner import log_lines
from transload.schedulers.api import Submission
from transload.specs import AppDef, AppState, Role, Workspace


@pytest.mark.engine("registry")
@pytest.mark.skipif(
    "REAL_CLUSTER" not in os.environ,
    reason="the cluster's node cannot reach this machine's loopback",
)
def test_a_node_pulls_what_was_pushed(
    namespace: str, scheduler: Any, eventually: Any, tmp_path: Path
) -> None:
    """An image that has nothing but a shell gets the code as a layer, and the pod works in it."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "kubernetes"))
    from loopback_registry import Registry  # type: ignore[import-not-found]

    registry = Registry(tmp_path)
    try:
        registry.wait(eventually)
        shell = shutil.which("busybox")
        assert shell is not None
        base = registry.image(files={os.path.realpath(shell): "bin/sh"})
        code = tmp_path / "code"
        code.mkdir()
        (code / "train.sh").write_text("echo trained in $PWD\n")
        app = AppDef(
            "a",
            [
                Role(
                    "main",
                    base,
                    entrypoint="sh",
                    args=["train.sh"],
                    workspace=Workspace({str(code): ""}),
                )
            ],
        )
        app.roles[0].env["PATH"] = "/bin"
        cfg = scheduler.options.read(
            {"namespace": namespace, "image_repo": f"{registry.name}/code"}
        )
        request = scheduler.convert(scheduler.prepare(app, cfg), cfg)
        app_id = f"{namespace}:image"
        scheduler.submit(
            request, app_id, Submission(app, app.digest(), "tests", cfg.cfg(), id_given=True)
        )
        found = eventually(
            lambda: (it := scheduler.describe([app_id])[app_id].status).is_terminal() and it, 90
        )
        assert found.state is AppState.SUCCEEDED, found
        assert list(log_lines(scheduler, app_id, "main", 0)) == ["trained in /workspace\n"]
    finally:
        registry.close()
