"""Containers beside the program may run on after it, fail, or run before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transload.runner import Runner
from transload.schedulers.api import reconcile
from transload.specs import AppDef, AppState, RetryPolicy
from transload_kubernetes.diagnose import OBSERVE


def beside(app: AppDef, command: str, *, first: bool = False) -> AppDef:
    """Add a container to the pods of a job's first role, as a webhook of the cluster does.

    With ``first`` it comes before the program's.
    """
    container = {"name": "proxy", "image": "proxy:1", "command": ["sh", "-c", command]}
    kind = "initContainers" if first else "containers"
    app.roles[0].metadata["kubernetes.job"] = {"spec": {"template": {"spec": {kind: [container]}}}}
    return app


@pytest.mark.parametrize("jobset", ["never", "always"])
@pytest.mark.parametrize("code", [0, 7])
def test_the_end_of_the_program_decides(runner: Runner, shell: Any, jobset: str, code: int) -> None:
    """A container that runs on does not hold the job, whose owner ends it.

    Exit code and log stay.
    """
    app = beside(shell(f"echo hello; exit {code}", replicas=2), "sleep 300")
    handle = runner.run(app, "kubernetes", {"jobset": jobset})
    final = runner.wait(handle, timeout=60)
    assert final is not None and final.state is (AppState.FAILED if code else AppState.SUCCEEDED)
    assert code in {each.exit_code for each in final.roles[0].replicas}
    if code:
        assert "exit code 7" in final.msg
    if code or jobset == "never":
        assert "hello\n" in [
            *runner.log_lines(handle, "main", 0),
            *runner.log_lines(handle, "main", 1),
        ]


@pytest.mark.parametrize("jobset", ["never", "always"])
def test_retries_are_as_without_it(fake: Any, runner: Runner, shell: Any, jobset: str) -> None:
    """A program that failed is started again, one that ended well is not, whatever runs beside
    it.
    """
    app = beside(
        shell('echo "$TRANSLOAD_RETRY"; exit "$((1 - TRANSLOAD_RETRY))"', replicas=2), "sleep 300"
    )
    app.roles[0].max_retries, app.roles[0].retry_policy = 1, RetryPolicy.REPLICA
    handle = runner.run(app, "kubernetes", {"jobset": jobset})
    final = runner.wait(handle, timeout=60)
    assert final is not None and (final.state, final.num_restarts) == (AppState.SUCCEEDED, 2)
    made = {
        item["metadata"]["name"]
        for _, event, _, item in fake.cluster.history
        if item["kind"] == "Pod"
    }
    assert len(made) == 4
    if jobset == "never":
        # asked of the cluster: a pod is deleted with its log if its Job fails first
        printed = [line for pod in made for _, line in fake.cluster.logs[pod].lines]
        assert sorted(printed) == [b"0\n", b"0\n", b"1\n", b"1\n"]


def test_others_run_on(runner: Runner, shell: Any, tmp_path: Any, eventually: Any) -> None:
    """A replica that ended well waits for the others, after which its pod is ended."""
    go = tmp_path / "go"
    command = (
        f'test "$TRANSLOAD_REPLICA_ID" = 0 || until test -e {go}; do sleep 0.05; done; echo done'
    )
    handle = runner.run(
        beside(shell(command, replicas=2), "sleep 300"), "kubernetes", {"jobset": "never"}
    )
    status = eventually(lambda: (it := runner.status(handle)).msg and it, 30)
    assert status.state is AppState.RUNNING
    assert status.msg == "main/0: its program has ended (0), but container proxy still runs"
    go.touch()
    final = runner.wait(handle, timeout=60)
    assert final is not None and final.state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main", 1)) == ["done\n"]


@pytest.mark.parametrize("jobset", ["never", "always"])
def test_results_of_a_helper_are_waited_for(runner: Runner, shell: Any, jobset: str) -> None:
    """A helper hands over when all of its pod ends, which is after the program's end."""
    body = json.dumps({"schema": 1, "key": "0", "results": {"loss": 0.5}})
    report = f"echo '{body}' >$TRANSLOAD_TRACKER_BASE/0.json"
    app = beside(shell(f"{report}; exit 0"), "trap 'sleep 0.7; exit' TERM; sleep 300 & wait")
    handle = runner.run(app, "kubernetes", {"jobset": jobset, "helper_image": "busybox:1"})
    final = runner.wait(handle, timeout=60)
    assert final is not None and final.state is AppState.SUCCEEDED
    assert runner.results(handle).value("loss") == 0.5


@pytest.mark.parametrize("jobset", ["never", "always"])
@pytest.mark.parametrize("code", [0, 7])
def test_who_only_looks_is_told(
    fake: Any, runner: Runner, scheduler: Any, shell: Any, eventually: Any, jobset: str, code: int
) -> None:
    """The status says what still runs until the owner has ended it, or has no right to."""
    handle = runner.run(
        beside(shell(f"exit {code}"), "sleep 300"), "kubernetes", {"jobset": jobset}
    )
    app_id = handle.rpartition("/")[2]
    found = eventually(lambda: (it := scheduler.describe(app_id)).status.msg and it, 30)
    assert (
        found.status.msg
        == f"main/0: its program has ended ({code}), but container proxy still runs"
    )
    assert (found.status.state, found.needs_reconcile) == (AppState.RUNNING, True)
    fake.cluster.rights = {(*what, verb) for what, verbs in OBSERVE.items() for verb in verbs}
    reconcile(scheduler, found)
    assert scheduler.describe(app_id).status.state is AppState.RUNNING


def test_a_container_that_fails_is_named(runner: Runner, shell: Any) -> None:
    """Its name, exit code and last lines are the app's error, not the program's exit code 0."""
    app = beside(shell("sleep 1; echo all is well"), "echo cannot listen; exit 3")
    final = runner.wait(runner.run(app, "kubernetes", {"jobset": "never"}), timeout=60)
    assert final is not None and final.state is AppState.FAILED
    assert final.msg.startswith("main/0 container proxy exit code 3; main/0: cannot listen")
    assert final.roles[0].replicas[0].exit_code == 3
    assert "last lines of container proxy" in final.structured_error_msg


def test_an_init_container_that_fails_is_named(runner: Runner, shell: Any) -> None:
    """What kept a program from beginning is the job's error."""
    app = beside(shell("echo never"), "echo one; echo no such disk; exit 9", first=True)
    final = runner.wait(runner.run(app, "kubernetes", {"jobset": "never"}), timeout=60)
    assert final is not None and final.state is AppState.FAILED
    assert final.msg.startswith("main/0 container proxy exit code 9; main/0: no such disk")
    assert final.roles[0].replicas[0].exit_code == 9


def test_an_init_container_that_ends_well(runner: Runner, shell: Any) -> None:
    """The program begins after it, and its end counts."""
    handle = runner.run(
        beside(shell("echo hello"), "true", first=True), "kubernetes", {"jobset": "never"}
    )
    final = runner.wait(handle, timeout=60)
    assert final is not None and final.state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main", 0)) == ["hello\n"]


def test_a_deleted_pod_is_named(fake: Any, runner: Runner, shell: Any, eventually: Any) -> None:
    """A replica whose pod somebody deleted has failed for that. With retries it starts again."""
    handle = runner.run(shell("sleep 300"), "kubernetes", {"jobset": "never"})
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, 30)
    fake.cluster.delete("pods", "default", fake.cluster.items("pods")[0]["metadata"]["name"])
    final = runner.wait(handle, timeout=60)
    assert final is not None and final.state is AppState.FAILED
    assert final.msg.endswith(": another user or program deleted its pod")


def test_a_deleted_pod_is_named_when_it_is_gone(
    fake: Any, runner: Runner, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the cluster says of the Job adds nothing to the reason why its replica has failed."""
    monkeypatch.setattr("fake_cluster._COUNTED_S", 0.0)
    handle = runner.run(shell("sleep 3000"), "kubernetes", {"jobset": "never"})
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, 30)
    (job,) = fake.cluster.items("jobs")
    fake.cluster._event(job, "MaxFailedIndexesExceeded", "Job has exceeded its failed indexes")
    (pod,) = fake.cluster.items("pods")
    fake.cluster.delete("pods", "default", pod["metadata"]["name"])
    eventually(lambda: not fake.cluster.items("pods"), 30)
    status = runner.wait(handle, timeout=30)
    assert status is not None and status.state is AppState.FAILED
    assert status.msg.endswith(": another user or program deleted its pod")
