"""What comes back from pods without storage on a real cluster: results, files and errors."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from transload.schedulers.api import Submission
from transload.specs import AppDef, AppState, Role
from transload_kubernetes import results

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
CFG: dict[str, Any] = {"image_pull_policy": "IfNotPresent", "grace_period": 2}


def finished(scheduler: Any, eventually: Any, namespace: str, command: str, replicas: int = 1, **more: Any) -> str:
    """Run an app of a shell command; return its id when it has ended."""
    cfg = scheduler.run_opts().resolve({**CFG, "namespace": namespace, **more})
    app = AppDef("r", [Role("main", IMAGE, entrypoint="sh", args=["-c", command], num_replicas=replicas)])
    app_id = f"{namespace}:r"
    base = scheduler.results_folder(app_id, cfg)
    submission = Submission(app, app.digest(), "tests", cfg, tracker_base=base, id_given=True)
    scheduler.submit(scheduler.convert(app, cfg), app_id, submission)
    eventually(lambda: scheduler.describe(app_id).status.is_terminal(), 90)
    return app_id


def test_results_come_with_the_status(namespace: str, scheduler: Any, eventually: Any) -> None:
    """4 KiB of results of each replica, with nothing installed."""
    command = """echo '{"loss": '$TRANSLOAD_REPLICA_ID'}' > $TRANSLOAD_RESULT_FILE"""
    store = scheduler.results_store(finished(scheduler, eventually, namespace, command, replicas=2))
    assert [json.loads(store.read(f"{k}.json"))["results"] for k in (0, 1)] == [{"loss": 0}, {"loss": 1}]


@pytest.mark.parametrize("end", ["exit 0", "kill -9 $$"])
def test_a_helper_hands_over_the_folder(namespace: str, scheduler: Any, eventually: Any, end: str) -> None:
    """The folder comes through a sidecar's log, however the program ended; its error comes with the status."""
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


def test_a_helper_that_cannot_start_is_named(cluster: Any, namespace: str, scheduler: Any, eventually: Any) -> None:
    """The app waits, and its status says for what."""
    cfg = scheduler.run_opts().resolve({**CFG, "namespace": namespace, "helper_image": "nowhere.example/helper:1"})
    app = AppDef("r", [Role("main", IMAGE, entrypoint="true")])
    submission = Submission(app, app.digest(), "tests", cfg, tracker_base=results.FOLDER, id_given=True)
    scheduler.submit(scheduler.convert(app, cfg), f"{namespace}:r", submission)
    eventually(lambda: "helper_image" in scheduler.describe(f"{namespace}:r").status.msg, 60)
