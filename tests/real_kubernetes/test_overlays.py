"""The overlays that the page shows, on a real cluster."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from transload.runner import log_lines
from transload.schedulers.api import Submission
from transload.specs import AppDef, AppState, Role

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
PAGE = (Path(__file__).parents[2] / "docs" / "schedulers" / "kubernetes.md").read_text()
SHOWN = re.findall(
    r"```yaml\n(.*?)```", PAGE.partition("\n## Overlays\n")[2].partition("\n## ")[0], re.DOTALL
)


@pytest.mark.parametrize("overlay", SHOWN, ids=("affinity", "spread", "image volume"))
def test_an_overlay_runs(
    cluster: Any, namespace: str, scheduler: Any, eventually: Any, overlay: str
) -> None:
    """The cluster takes it as it stands, the pods have it, and two replicas run."""
    command = "if [ -d /model ]; then ls /model/etc/debian_version; fi"
    app = AppDef("o", [Role("main", IMAGE, entrypoint="sh", args=["-c", command], num_replicas=2)])
    overlay = overlay.replace("registry.example/model:1", IMAGE)
    cfg = scheduler.options.read(
        {
            "image_pull_policy": "IfNotPresent",
            "namespace": namespace,
            "overlay": overlay,
        }
    )
    app_id = f"{namespace}:o"
    scheduler.submit(
        scheduler.convert(app, cfg),
        app_id,
        Submission(app, app.digest(), "tests", cfg.cfg(), id_given=True),
    )
    found = eventually(
        lambda: (it := scheduler.describe([app_id])[app_id].status).is_terminal() and it, 60
    )
    assert found.state is AppState.SUCCEEDED, found
    pod = cluster.items(namespace, "pods")[0]["spec"]
    if "volumes" in overlay:
        assert list(log_lines(scheduler, app_id, "main", 0)) == ["/model/etc/debian_version\n"]
    else:
        (word,) = {"affinity", "topologySpreadConstraints"} & {*re.findall(r"\w+", overlay)}
        assert pod[word]
