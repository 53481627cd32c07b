"""Results, files and errors come back from pods without storage on a real cluster."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.schedulers.api import Submission
from transload.specs import AppDef, AppState, Notice, RetryPolicy, Role

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
CFG: dict[str, Any] = {"image_pull_policy": "IfNotPresent"}
SLEEPS = {"evict": "sleep 12", "cancel too late": "exit 0", "cancel at the end": "sleep 1.5"}
"""What the program of a pod does at last that is ended in some way."""


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


def test_results_come_with_the_status(namespace: str, scheduler: Any, eventually: Any) -> None:
    """4 KiB of results of each replica, with nothing installed."""
    command = """echo '{"loss": '$TRANSLOAD_REPLICA_ID'}' > $TRANSLOAD_RESULT_FILE"""
    store = scheduler.results_store(finished(scheduler, eventually, namespace, command, replicas=2))
    assert [json.loads(store.read(f"{k}.json"))["results"] for k in (0, 1)] == [
        {"loss": 0},
        {"loss": 1},
    ]


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


def test_a_helper_tells_what_was_used_and_the_whole_error(
    namespace: str, scheduler: Any, eventually: Any
) -> None:
    """Memory and CPU of all attempts as the helpers saw them, and an error file that no status
    could hold.
    """
    program = """import json, os, time
first = os.environ["TRANSLOAD_RETRY"] == "0"
held = bytearray(150 << 20 if first else 1)
end = time.process_time() + 1
while time.process_time() < end: pass
time.sleep(6)
json.dump({"message": "ValueError: no", "more": "0" * 20_000}, open(os.environ["TRANSLOAD_ERROR_FILE"], "w"))
raise SystemExit(3)"""
    app_id = finished(
        scheduler, eventually, namespace, f"python3 -c '{program}'", retries=1, helper_image=IMAGE
    )
    status = scheduler.describe(app_id).status
    assert json.loads(status.structured_error_msg) == {
        "message": "ValueError: no",
        "more": "0" * 20_000,
    }
    usage = status.usage()
    assert usage.peak_memory is not None and 150 << 20 < usage.peak_memory < 400 << 20
    assert usage.cpu_seconds is not None and 1.9 < usage.cpu_seconds < 9


def test_a_helper_that_cannot_start_holds_nothing_up(
    namespace: str, scheduler: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A helper's image is tried before. If it fails, the program runs without it, and says so."""
    command = """echo '{"loss": 1}' > $TRANSLOAD_RESULT_FILE; test -z "$TRANSLOAD_TRACKER_BASE\""""
    app_id = finished(
        scheduler, eventually, namespace, command, helper_image="nowhere.example/helper:1"
    )
    assert scheduler.describe(app_id).status.state is AppState.SUCCEEDED
    assert json.loads(scheduler.results_store(app_id).read("0.json"))["results"] == {"loss": 1}
    assert "runs without its helper" in caplog.text and "helper_image: " in caplog.text


@pytest.mark.parametrize(
    ("how", "state"),
    [
        ("cancel", "CANCELLED"),
        ("delete", "FAILED"),
        ("evict", "SUCCEEDED"),
        ("time", "FAILED"),
        ("cancel too late", "SUCCEEDED"),  # the program has ended, and no kubelet has told that yet
        ("cancel at the end", "SUCCEEDED"),  # it ends before its SIGTERM comes
    ],
)
def test_what_ends_from_outside_hands_over(
    cluster: Any, namespace: str, transload_home: Path, how: str, state: str
) -> None:
    """A waiting client keeps the folder that a helper hands over as it was at SIGTERM."""
    from transload_kubernetes.scheduler import create_scheduler

    body = '{"schema": 1, "key": "0", "results": {"x": 1}}'
    command = (
        f"echo '{body}' > $TRANSLOAD_TRACKER_BASE/0.json; echo said; {SLEEPS.get(how, 'sleep 300')}"
    )
    app = AppDef(
        "r",
        [Role("main", IMAGE, entrypoint="sh", args=["-c", command], notice=Notice(10))],
        timeout=25 if how == "time" else None,
    )
    with Runner("tests", {"kubernetes": create_scheduler}) as runner:
        handle = runner.run(
            app,
            "kubernetes",
            {**CFG, "namespace": namespace, "helper_image": IMAGE},
        )

        def end_it() -> None:
            next(iter(runner.log_lines(handle, "main", should_tail=True)))
            pods = [each["metadata"]["name"] for each in cluster.items(namespace, "pods")]
            (pod,) = (name for name in pods if not name.startswith("transload-results"))
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
            if how.startswith("cancel"):
                runner.cancel(handle)
            elif how == "delete":
                cluster.ask("DELETE", path)
            elif how == "evict":
                body = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": pod, "namespace": namespace},
                }
                cluster.ask("POST", f"{path}/eviction", body)

        thread = threading.Thread(target=end_it)
        thread.start()
        status = runner.wait(handle, timeout=90)
        thread.join()
        assert status is not None and status.state.name == state
        assert runner.results(handle).value("x") == 1
        record = cluster.items(namespace, "configmaps")
        kept = [
            key for each in record for key in each.get("data") or {} if key.startswith("files.")
        ]
        assert len(kept) == 1 or how == "cancel too late"
