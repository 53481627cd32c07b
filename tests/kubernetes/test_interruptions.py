"""Interruptions are counted apart from failures, with their cause, and bounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import UnsupportedFeature
from transload.runner import Runner
from transload.specs import AppDef, AppState, Notice, RetryPolicy, Role
from transload_kubernetes import interruptions
from transload_kubernetes.convert import convert
from transload_kubernetes.options import KubernetesOptions

IGNORE = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
TOGETHER = {"num_replicas": 2, "retry_policy": RetryPolicy.APPLICATION}


def _job(**fields: Any) -> dict[str, Any]:
    """Return the Job of a role."""
    role = Role("main", "busybox:1", entrypoint="sh", **fields)
    opts = KubernetesOptions.read({"jobset": "never"})
    return convert(AppDef("a", [role]), opts, "kubernetes", "a").jobs[0]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({}, IGNORE),
        ({"notice": Notice(60)}, IGNORE),
        (TOGETHER, IGNORE),
        ({**TOGETHER, "notice": Notice(60)}, {**IGNORE, "action": "FailJob"}),
    ],
)
def test_what_the_cluster_is_told(fields: dict[str, Any], rule: dict[str, Any]) -> None:
    """A replica is started again whenever the cluster ends it.

    Replicas that belong together, and go on from where they were, all are.
    """
    assert _job(**fields)["spec"]["podFailurePolicy"]["rules"] == [rule]


@pytest.mark.parametrize("most", [0, 3])
def test_they_are_not_bounded(most: int) -> None:
    """A number of interruptions that a role may have is refused by its path."""
    with pytest.raises(UnsupportedFeature, match="roles.0..max_interruptions") as caught:
        _job(max_interruptions=most, notice=Notice(60))
    assert caught.value.field == "roles[0].max_interruptions"


def _pod(why: str, code: int | None = None, **status: Any) -> dict[str, Any]:
    """Return a pod that the cluster has ended."""
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": why}]
    ends = []
    if code is not None:
        ends = [{"name": "main", "state": {"terminated": {"exitCode": code}}}]
    found = {"phase": "Failed", "conditions": conditions, "containerStatuses": ends, **status}
    return {"metadata": {"name": "p"}, "spec": {}, "status": found}


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        (_pod("PreemptionByScheduler", 143), "preempted"),
        (_pod("EvictionByEvictionAPI", 75), "drained"),
        (_pod("DeletionByTaintManager"), "node"),
        (_pod("DeletionByPodGC"), "node"),
        (_pod("TerminationByKubelet", 137, reason="Evicted"), "evicted"),
        (_pod("TerminationByKubelet", 137, reason="Terminated"), "drained"),
        (_pod("TerminationByKubelet", 137, reason="Preempting"), "preempted"),
        (_pod("OfAFutureVersion", 137), "evicted"),
        (_pod("EvictionByEvictionAPI", 7), "drained"),
        (_pod("EvictionByEvictionAPI", 0, phase="Succeeded"), ""),
        ({"metadata": {"name": "p"}, "status": {"phase": "Failed"}}, ""),
    ],
)
def test_causes(pod: dict[str, Any], cause: str) -> None:
    """The cluster's reason names the cause."""
    assert interruptions.cause_of(pod) == cause


def test_interruptions_are_counted(
    fake: Any, runner: Runner, shell: Callable[..., AppDef], eventually: Any
) -> None:
    """They spend no retry, whatever process looks, and the cause of the latest is shown."""
    job = runner.job(runner.run(shell("sleep 300"), "kubernetes", {"jobset": "never"}))

    def running(number: int) -> Any:
        return [
            pod
            for pod in fake.cluster.items("pods")
            if pod["status"]["phase"] == "Running" and _number(pod) == number
        ]

    for number in range(2):
        pods = eventually(lambda number=number: running(number), timeout=30)
        fake.cluster.evict(pods[0])
    status = eventually(
        lambda: (it := job.status()) and it.interruptions == 2 and it.roles[0].replicas[0], 30
    )
    assert status.restarts == 0
    assert {each.cause for each in status.earlier} <= {"preempted"}


def test_exit_code_75_is_a_failure(
    fake: Any, runner: Runner, shell: Callable[..., AppDef], eventually: Any
) -> None:
    """A program that asks to go on has failed where a person has deleted its pod, and it is said."""
    command = "echo up; trap 'exit 75' TERM; while :; do sleep 0.1; done"
    job = runner.job(runner.run(shell(command, notice=Notice(5)), "kubernetes"))
    eventually(lambda: list(runner.log_lines(job.handle, "main", 0)), timeout=30)
    (pod,) = fake.cluster.items("pods")
    fake.cluster.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
    status = job.wait(timeout=60)
    assert (status.state, status.interruptions) == (AppState.FAILED, 0)
    assert "another user or program deleted its pod" in status.msg


@pytest.mark.parametrize("jobset", ["never", "always"])
def test_replicas_that_belong_together_start_again_together(
    fake: Any,
    runner: Runner,
    shell: Callable[..., AppDef],
    eventually: Any,
    tmp_path: Path,
    jobset: str,
) -> None:
    """With the policy APPLICATION an interruption of one replica starts the other one again, and
    spends no retry, with Jobs and with a JobSet.
    """
    starts = tmp_path / "starts"
    command = (
        f'echo "$TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS" >> {starts}; '
        f"[ -e {tmp_path / 'go'} ] && exit 0; while :; do sleep 0.1; done"
    )
    app = shell(command, replicas=2, notice=Notice(1), retry_policy=RetryPolicy.APPLICATION)
    job = runner.job(runner.run(app, "kubernetes", {"jobset": jobset}))

    def lines() -> list[str]:
        return starts.read_text().splitlines() if starts.exists() else []

    eventually(lambda: len(lines()) == 2, timeout=60)
    (tmp_path / "go").touch()
    pods = [pod for pod in fake.cluster.items("pods") if pod["status"]["phase"] == "Running"]
    fake.cluster.evict(pods[0])
    status = job.wait(timeout=60)
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 0), status
    assert status.interruptions == 1
    assert lines()[:2] == ["0 0", "0 0"]
    if jobset == "never":
        assert lines()[2:] == ["0 1", "0 1"]
    else:  # a JobSet has one count for all its starts
        assert lines()[2:] == ["1 0", "1 0"]
    causes = [each.cause for each in status.roles[0].replicas[0].earlier]
    causes += [each.cause for each in status.roles[0].replicas[1].earlier]
    if jobset == "never":  # a JobSet removes its pods at once, and with them the cause
        assert causes == ["preempted"]


def _number(pod: dict[str, Any]) -> int:
    """Return how often the replica of a pod was interrupted before."""
    name = "batch.kubernetes.io/job-index-ignored-failure-count"
    return int(pod["metadata"]["annotations"][name])
