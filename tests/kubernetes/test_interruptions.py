"""Interruptions are counted apart from failures, with their cause, and bounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, Notice, RetryPolicy, Role
from transload_kubernetes import interruptions, names
from transload_kubernetes.convert import convert
from transload_kubernetes.decide import decide
from transload_kubernetes.plan import Facts, Plan, RolePlan, record

IGNORE = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
COUNT = {
    "action": "Count",
    "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [75, 137, 143]},
}


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({}, [IGNORE]),
        ({"notice": Notice(60)}, [COUNT, IGNORE]),
        ({"max_interruptions": 3}, [COUNT, IGNORE]),
        ({"max_interruptions": 0, "notice": Notice(60)}, None),
    ],
)
def test_what_the_cluster_is_told(fields: dict[str, Any], rules: list[Any] | None) -> None:
    """A role without settings is started again whenever the cluster ends it.

    A role with interruptions is so only if its program ended as asked, and one that allows none has
    failed.
    """
    role = Role("main", "busybox:1", entrypoint="sh", **fields)
    job = convert(AppDef("a", [role]), {"jobset": "never"}, "kubernetes", "a").jobs[0]
    policy = job["spec"].get("podFailurePolicy", {})
    assert policy.get("rules") == rules


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
        (_pod("EvictionByEvictionAPI", 7), ""),
        (_pod("EvictionByEvictionAPI", 0, phase="Succeeded"), ""),
        ({"metadata": {"name": "p"}, "status": {"phase": "Failed"}}, ""),
    ],
)
def test_causes(pod: dict[str, Any], cause: str) -> None:
    """The cluster's reason names the cause. An exit code of the program's own is a failure."""
    assert interruptions.cause_of(pod, RolePlan("main", 1, 1, interruptions=100), {}) == cause
    assert interruptions.cause_of(pod, RolePlan("main", 1, 1, interruptions=0), {}) == ""


@pytest.mark.parametrize(("queue", "count"), [("gpus", 1), ("", 0)])
def test_what_a_queue_takes_back_is_an_interruption(queue: str, count: int) -> None:
    """A queue that needs the place suspends the Job, which is an interruption.

    An administrator's suspension is none.
    """
    made = Plan("a", "a", "sha256:0", "s", 1.0, [RolePlan("main", 1, 1)], cfg={"queue": queue})
    item = record("a", "default", made, "{}")
    item["data"]["submitted"] = "yes"
    labels = {names.LABEL_ROLE: "main", names.INDEX: "0", names.LABEL_ATTEMPT: "a0r0"}
    job = {
        "metadata": {"name": "a-main", "labels": labels},
        "spec": {"suspend": True},
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
    }
    running = [{"name": "main", "state": {"running": {"startedAt": "2026-11-26T05:00:00Z"}}}]
    pod = {
        "metadata": {
            "name": "a-main-0-x",
            "labels": labels,
            "creationTimestamp": "2026-11-26T05:00:00Z",
            "deletionTimestamp": "2026-11-26T05:10:00Z",
        },
        "spec": {"containers": []},
        "status": {"phase": "Running", "containerStatuses": running},
    }
    decision = decide(Facts(item, [job], [pod]), 100.0)
    replica = decision.status.roles[0].replicas[0]
    assert replica.interruptions == count
    assert [each.cause for each in replica.earlier] == ["preempted"] * count
    assert len(decision.interrupted) == count


def test_interruptions_are_counted_and_bounded(
    fake: Any, runner: Runner, shell: Callable[..., AppDef], eventually: Any
) -> None:
    """A first interruption spends no retry. The second is one too many, though retries are left."""
    command = 'echo "$TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS"; while :; do sleep 0.1; done'
    app = shell(command, max_retries=2, max_interruptions=1)
    job = runner.job(runner.run(app, "kubernetes", {"jobset": "never"}))

    def evict(number: int) -> None:
        def running() -> Any:
            job.status()
            return [
                pod
                for pod in fake.cluster.items("pods")
                if pod["status"]["phase"] == "Running" and _number(pod) == number
            ]

        pods = eventually(running, timeout=30)
        fake.cluster.evict(pods[0])

    def waited() -> Any:
        description = job.description()
        if description is not None and description.needs_reconcile:
            job.scheduler.reconcile(description.app_id)
        return description

    evict(0)
    eventually(lambda: (found := waited()) and found.status.interruptions == 1, timeout=30)
    evict(1)
    eventually(lambda: (found := waited()) and found.status.is_terminal(), timeout=30)
    status = job.status()
    assert status is not None and status.state is AppState.FAILED
    assert "interrupted (preempted), and its 1 interruptions are used up" in status.msg
    assert status.num_restarts == 0
    replica = status.roles[0].replicas[0]
    assert [each.cause for each in replica.earlier] == ["preempted", "preempted"]
    assert replica.interruptions == 2


@pytest.mark.parametrize("policy", list(RetryPolicy))
def test_a_pod_that_somebody_deletes(
    fake: Any, runner: Runner, shell: Callable[..., AppDef], policy: RetryPolicy, eventually: Any
) -> None:
    """A deleted pod whose program asks to go on is started again without spending a retry."""
    command = (
        'echo "$TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS"; [ "$TRANSLOAD_INTERRUPTIONS" = 1 ] && exit; '
        "trap 'exit 75' TERM; while :; do sleep 0.1; done"
    )
    app = shell(command, notice=Notice(5), retry_policy=policy)
    job = runner.job(runner.run(app, "kubernetes", {"jobset": "never"}))
    eventually(lambda: list(runner.log_lines(job.handle, "main", 0)), timeout=30)
    (pod,) = fake.cluster.items("pods")
    fake.cluster.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
    status = job.wait(timeout=60)
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 0), status
    (replica,) = status.roles[0].replicas
    assert (replica.restarts, replica.interruptions) == (0, 1)
    assert [(each.cause, each.exit_code) for each in replica.earlier] == [("requested", 75)]
    assert list(runner.log_lines(job.handle, "main", 0))[-1] == "0 1\n"


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
