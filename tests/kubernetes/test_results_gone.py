"""Results that went with their pods are an error, and what was read at a job's end is kept."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from transload.runner import Runner
from transload.runtime.tracking import ResultsGone
from transload.specs import AppState

REPORTS = """echo '{"loss": 0.5}' >> $TRANSLOAD_RESULT_FILE"""


def finished(fake: Any, eventually: Any, count: int = 1) -> None:
    """Wait until so many Jobs have ended, without asking for the job's status."""

    def look() -> bool:
        jobs = fake.cluster.items("jobs")
        found = [each["status"].get("conditions", []) for each in jobs]
        ends = [each[-1]["type"] if each else "" for each in found]
        return len(ends) == count and set(ends) <= {"Complete", "Failed"}

    eventually(look, 30)


def delete_pods(fake: Any, index: str = "") -> None:
    """Delete the pods of all replicas, or of one, as the cluster's collector does."""
    for pod in fake.cluster.items("pods"):
        if pod["metadata"]["name"].rpartition("-")[0].endswith(index):
            fake.cluster.delete("pods", "default", pod["metadata"]["name"])


def says(handle: str) -> subprocess.CompletedProcess[str]:
    """Ask for the results of a job on the command line."""
    command = [sys.executable, "-m", "transload", "results", handle]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_pods_that_were_deleted_before_anybody_looked(
    fake: Any, runner: Runner, shell: Any, eventually: Any
) -> None:
    """A job that succeeded, and whose pods were collected, has no empty results."""
    handle = runner.run(shell(REPORTS), "kubernetes", {"jobset": "never"})
    finished(fake, eventually)
    delete_pods(fake)
    status = runner.wait(handle, timeout=30)
    assert status is not None and status.state is AppState.SUCCEEDED
    with pytest.raises(ResultsGone, match="main/0"):
        runner.results(handle)
    done = says(handle)
    assert done.returncode != 0 and "main/0" in done.stderr and not done.stdout


def test_one_of_two_replicas(fake: Any, runner: Runner, shell: Any, eventually: Any) -> None:
    """The results of some replicas are not taken for those of all."""
    handle = runner.run(shell(REPORTS, replicas=2), "kubernetes", {"jobset": "never"})
    finished(fake, eventually)
    delete_pods(fake, "-1")
    with pytest.raises(ResultsGone, match="main/1"):
        runner.results(handle)


def test_a_ttl_that_was_faster(fake: Any, runner: Runner, shell: Any, eventually: Any) -> None:
    """Where the cluster itself was told to remove the pods, that is said."""
    handle = runner.run(shell(REPORTS), "kubernetes", {"jobset": "never", "ttl": 0})
    eventually(lambda: fake.cluster.finished and not fake.cluster.items("jobs"), 30)
    with pytest.raises(ResultsGone, match="ttl=0"):
        runner.results(handle)


@pytest.mark.parametrize("jobset", ["never", "always"])
def test_whoever_sees_the_end_keeps_the_results(
    fake: Any, runner: Runner, shell: Any, eventually: Any, jobset: str
) -> None:
    """Once the end was seen by its owner, the results do not need the pods any more."""
    app = shell({"main": REPORTS, "other": "true"}, replicas=2)
    handle = runner.run(app, "kubernetes", {"jobset": jobset})
    status = runner.wait(handle, timeout=30)
    assert status is not None and status.state is AppState.SUCCEEDED
    delete_pods(fake)
    eventually(lambda: not fake.cluster.items("pods"), 30)
    found = runner.results(handle)
    assert found.results == {"main/0": {"loss": 0.5}, "main/1": {"loss": 0.5}}


def test_a_job_that_reported_nothing(
    fake: Any, runner: Runner, shell: Any, eventually: Any
) -> None:
    """Nothing was lost of it, whether it runs, was cancelled, or has ended."""
    running = runner.run(shell("sleep 300"), "kubernetes")
    assert runner.results(running).results == {}
    ended = runner.run(shell("true"), "kubernetes")
    runner.wait(ended, timeout=30)
    assert runner.results(ended).results == {}
    runner.cancel(running)
    assert runner.wait(running, timeout=30).state is AppState.CANCELLED
    assert runner.results(running).results == {}


def test_a_record_that_is_damaged(fake: Any, runner: Runner, shell: Any) -> None:
    """Where the record cannot be read, nobody knows what was reported."""
    handle = runner.run(shell(REPORTS), "kubernetes", {"jobset": "never"})
    runner.wait(handle, timeout=30)
    base = handle.rpartition(":")[2]
    fake.cluster.patch("configmaps", "default", base, {"data": {"plan": "{"}})
    with pytest.raises(ResultsGone, match=base):
        runner.results(handle)
