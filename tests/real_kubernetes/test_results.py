"""Results, files and errors come back from pods without storage on a real cluster."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from transload.schedulers.api import Submission
from transload.specs import AppDef, AppState, RetryPolicy, Role

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
CFG: dict[str, Any] = {"image_pull_policy": "IfNotPresent"}


def finished(
    scheduler: Any,
    eventually: Any,
    namespace: str,
    command: str,
    replicas: int = 1,
    retries: int = 0,
    **more: Any,
) -> str:
    """Run a job of a shell command, and return its id when it has ended."""
    cfg = scheduler.options.read({**CFG, "namespace": namespace, **more})
    role = Role("main", IMAGE, entrypoint="sh", args=["-c", command], num_replicas=replicas)
    role.max_retries, role.retry_policy = retries, RetryPolicy.REPLICA
    app = AppDef("r", [role])
    app_id = f"{namespace}:r"
    submission = Submission(app, app.digest(), "tests", cfg.cfg(), id_given=True)
    scheduler.submit(scheduler.convert(app, cfg), app_id, submission)
    eventually(lambda: scheduler.describe([app_id])[app_id].status.is_terminal(), 90)
    return app_id


@pytest.mark.parametrize("end", ["exit 0", "kill -9 $$"])
def test_results_and_errors_come_with_the_status(
    namespace: str, scheduler: Any, eventually: Any, end: str
) -> None:
    """Both come through the termination message, however the program ended."""
    command = f"""echo '{{"loss": 0.5}}' >> $TRANSLOAD_RESULT_FILE
    echo 'ValueError: no' >> $TRANSLOAD_ERROR_FILE; {end}"""
    app_id = finished(scheduler, eventually, namespace, command)
    found = json.loads(scheduler.results_store(app_id).read("0.json"))
    assert found["results"] == {"loss": 0.5}
    status = scheduler.describe([app_id])[app_id].status
    assert status.state is (AppState.SUCCEEDED if end == "exit 0" else AppState.FAILED)
    if end != "exit 0":
        assert "ValueError: no" in status.msg and json.loads(status.structured_error_msg) == {
            "message": "ValueError: no"
        }
