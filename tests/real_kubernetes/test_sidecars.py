"""Containers beside the program, on a real cluster."""

from __future__ import annotations

import os
from typing import Any

from transload.runner import log_lines
from transload.schedulers.api import Submission, reconcile
from transload.specs import AppDef, AppState, AppStatus, Role

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
CFG: dict[str, Any] = {"image_pull_policy": "IfNotPresent", "jobset": "never"}


def ended(scheduler: Any, eventually: Any, app_id: str) -> AppStatus:
    """Wait for the end of an app as its owner."""

    def look() -> AppStatus | None:
        found = scheduler.describe([app_id])[app_id]
        reconcile(scheduler, found)
        return found.status if found.status.is_terminal() else None

    return eventually(look, 120)  # type: ignore[no-any-return]


def test_a_container_that_runs_on_holds_the_job(
    namespace: str, scheduler: Any, eventually: Any
) -> None:
    """The status says that the program has ended. The job ends, as the program, with the other."""
    role = Role("main", IMAGE, entrypoint="sh", args=["-c", "echo hello; exit 7"])
    proxy = {
        "name": "proxy",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "sleep 10"],
    }
    role.metadata["kubernetes.job"] = {"spec": {"template": {"spec": {"containers": [proxy]}}}}
    app = AppDef("beside", [role])
    options = scheduler.options.read({**CFG, "namespace": namespace})
    app_id = f"{namespace}:beside"
    submission = Submission(app, app.digest(), "tests", options.cfg(), id_given=True)
    scheduler.submit(scheduler.convert(app, options), app_id, submission)
    text = "its program has ended (7), but container proxy still runs"
    eventually(lambda: text in scheduler.describe([app_id])[app_id].status.msg, 60)
    final = ended(scheduler, eventually, app_id)
    assert final.state is AppState.FAILED
    assert final.roles[0].replicas[0].exit_code == 7
    assert list(log_lines(scheduler, app_id, "main", 0)) == ["hello\n"]
