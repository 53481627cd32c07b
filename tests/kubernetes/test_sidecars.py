"""Containers beside the program may run on after it, fail, or run before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState


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
def test_a_container_that_runs_on_holds_the_job(
    runner: Runner, shell: Any, tmp_path: Path, eventually: Any, jobset: str, code: int
) -> None:
    """The status says that the program has ended. The job ends, as the program, with the other."""
    go = tmp_path / "go"
    app = beside(shell(f"echo hello; exit {code}"), f"until test -e {go}; do sleep 0.05; done")
    handle = runner.run(app, "kubernetes", {"jobset": jobset})
    status = eventually(lambda: (it := runner.status(handle)).msg and it, 30)
    assert status.state is AppState.RUNNING
    assert status.msg == f"main/0: its program has ended ({code}), but container proxy still runs"
    go.touch()
    final = runner.wait(handle, timeout=60)
    assert final is not None and final.state is (AppState.FAILED if code else AppState.SUCCEEDED)
    assert final.roles[0].replicas[0].exit_code == code
    assert list(runner.log_lines(handle, "main", 0)) == ["hello\n"]


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
