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
    cfg = scheduler.run_opts().resolve({**CFG, "namespace": namespace, **more})
    role = Role("main", IMAGE, entrypoint="sh", args=["-c", command], num_replicas=replicas)
    role.max_retries, role.retry_policy = retries, RetryPolicy.REPLICA
    app = AppDef("r", [role])
    app_id = f"{namespace}:r"
    base = scheduler.results_folder(app_id, cfg)
    submission = Submission(app, app.digest(), "tests", cfg, tracker_base=base, id_given=True)
    scheduler.submit(scheduler.convert(app, cfg), app_id, submission)
    eventually(lambda: scheduler.describe(app_id).status.is_terminal(), 90)
    return app_id


@pytest.mark.parametrize("end", ["exit 0", "kill -9 $$"])
def test_a_helper_hands_over_the_folder(
    namespace: str, scheduler: Any, eventually: Any, end: str
) -> None:
    """The folder comes through a sidecar's log, however the program ended.

    The status has its error.
    """
    command = f"""cd $TRANSLOAD_TRACKER_BASE; head -c 200000 /dev/zero > zeros; echo 1 > outputs/made
    echo 'ValueError: no' > $TRANSLOAD_ERROR_FILE; {end}"""
    app_id = finished(scheduler, eventually, namespace, command, helper_image=IMAGE)
    store = scheduler.results_store(app_id)
    assert (store.read("zeros"), store.read("outputs/made")) == (bytes(200_000), b"1\n")
    status = scheduler.describe(app_id).status
    assert status.state is (AppState.SUCCEEDED if end == "exit 0" else AppState.FAILED)
    if end != "exit 0":
        assert "ValueError: no" in status.msg and json.loads(status.structured_error_msg) == {
            "message": "ValueError: no"
        }
