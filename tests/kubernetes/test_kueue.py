"""A job in a Kueue queue says why it waits, in the words of Kueue 0.19, whose controller is not run."""

from __future__ import annotations

from typing import Any

import pytest

from transload.errors import UnsupportedFeature
from transload.runner import Runner
from transload.specs import AppDef, AppState, RetryPolicy, Role

JOBSET = pytest.mark.parametrize("jobset", ["never", "always"])
PENDING = "Pending"
NO_FLAVOR = "couldn't assign flavors to pod set main"
TOO_MUCH = (
    "previously considered podsets requests (0) + current podset request (2) > maximum capacity (1)"
)


def queued(fake: Any, runner: Runner, app: AppDef, eventually: Any, **cfg: Any) -> str:
    """Submit a job to a queue, and return its handle once its Job or JobSet is suspended."""
    handle = runner.run(app, "kubernetes", {"queue": "gpus", **cfg})
    eventually(lambda: "waits in queue gpus" in runner.status(handle).msg, 30)
    return handle


def kueue_says(
    fake: Any, reason: str, message: str, evicted: str = "", plural: str = "jobs"
) -> None:
    """Make the Workload of the only Job or JobSet, as Kueue does that has not admitted it."""
    (item,) = fake.cluster.items(plural)
    conditions = [
        {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    ]
    if evicted:
        conditions.append(
            {"type": "Evicted", "status": "True", "reason": evicted, "message": message}
        )
    metadata = {
        "name": f"{item['kind'].lower()}-{item['metadata']['name']}-1a2b3",
        "labels": {"kueue.x-k8s.io/job-uid": item["metadata"]["uid"]},
    }
    workload = {"metadata": metadata, "status": {"conditions": conditions}}
    with fake.cluster.lock:
        fake.cluster.has_kueue = True
        fake.cluster.create("workloads", "default", workload)


@JOBSET
@pytest.mark.parametrize(
    ("reason", "message", "forever"),
    [
        ("Inadmissible", "LocalQueue gpus doesn't exist", True),
        ("Inadmissible", "ClusterQueue all is inactive", True),
        ("Inadmissible", "LocalQueue gpus is stopped", True),
        (
            PENDING,
            f"{NO_FLAVOR}: insufficient unused quota for cpu in flavor small, 1 more needed",
            False,
        ),
        (
            PENDING,
            f"{NO_FLAVOR}: insufficient quota for cpu in flavor small, {TOO_MUCH}",
            True,
        ),
        ("ExceedsMaxQuota", "it asks for too much", True),
    ],
)
def test_why_a_queue_starts_nothing(
    fake: Any,
    runner: Runner,
    shell: Any,
    eventually: Any,
    jobset: str,
    reason: str,
    message: str,
    forever: bool,
) -> None:
    """The status names the queue and has Kueue's reason, and what no time mends says how to end it."""
    handle = queued(fake, runner, shell("true"), eventually, jobset=jobset)
    kueue_says(fake, reason, message, plural={"never": "jobs", "always": "jobsets"}[jobset])
    status = runner.status(handle)
    assert status.state is AppState.PENDING
    assert "queue gpus" in status.msg and message in status.msg
    assert (f"transload cancel {handle}" in status.msg) is forever
    assert ("can never start" in status.msg) is (forever and reason != "Inadmissible")
    runner.cancel(handle)


@pytest.mark.parametrize(
    ("evicted", "word"),
    [
        ("Preempted", "preempted"),
        ("Deactivated", "deactivated"),
        ("ClusterQueueStopped", "stopped"),
        ("LocalQueueStopped", "stopped"),
        ("PodsReadyTimeout", "PodsReadyTimeout"),
    ],
)
def test_what_was_taken_out_again(
    fake: Any, runner: Runner, shell: Any, eventually: Any, evicted: str, word: str
) -> None:
    """A job that had been started says why it waits again, by one word for each cause."""
    handle = queued(fake, runner, shell("true"), eventually)
    kueue_says(fake, PENDING, "as Kueue says", evicted)
    assert f"{word}: as Kueue says" in runner.status(handle).msg
    runner.cancel(handle)


def test_it_is_started_again_once_it_is(
    fake: Any, runner: Runner, shell: Any, eventually: Any
) -> None:
    """While a queue keeps what it has interrupted, that was no new start yet."""
    handle = queued(fake, runner, shell("sleep 300"), eventually)

    def set_suspended(suspend: bool) -> None:
        with fake.cluster.lock:
            (job,) = fake.cluster.items("jobs")
            name = job["metadata"]["name"]
            fake.cluster.patch("jobs", "default", name, {"spec": {"suspend": suspend}})

    def interruptions() -> int:
        return int(runner.status(handle).roles[0].replicas[0].interruptions)

    set_suspended(False)
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, 30)
    with fake.cluster.lock:
        (pod,) = fake.cluster.items("pods")
        fake.cluster.evict(pod)
        assert fake.cluster.changed.wait_for(lambda: pod["status"]["phase"] == "Failed", 30)
        set_suspended(True)
    eventually(lambda: runner.status(handle).state is AppState.PENDING, 30)
    status = runner.status(handle)
    assert "waits in queue gpus" in status.msg and "interrupt" not in status.msg
    assert interruptions() == 0
    set_suspended(False)
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, 30)
    assert interruptions() == 1
    runner.cancel(handle)


@JOBSET
def test_an_unknown_priority(
    fake: Any, runner: Runner, shell: Any, eventually: Any, jobset: str
) -> None:
    """Kueue makes no Workload then, and warns about the Job or JobSet itself."""
    cfg = {"jobset": jobset, "queue_priority": "nosuch"}
    handle = queued(fake, runner, shell("true"), eventually, **cfg)
    with fake.cluster.lock:
        (item,) = fake.cluster.items({"never": "jobs", "always": "jobsets"}[jobset])
        fake.cluster._event(
            item, "WorkloadPriorityClassNotFound", 'WorkloadPriorityClass "nosuch" not found'
        )
    status = runner.status(handle)
    assert 'WorkloadPriorityClass "nosuch" not found' in status.msg
    assert f"transload cancel {handle}" in status.msg
    runner.cancel(handle)


def test_without_the_right_to_read_workloads(
    fake: Any, runner: Runner, shell: Any, eventually: Any
) -> None:
    """All else works, and a status has what the events about the Workload say."""
    handle = queued(fake, runner, shell("true"), eventually)
    kueue_says(fake, PENDING, "hidden")
    fake.cluster.rights -= {("kueue.x-k8s.io", "workloads", "list")}
    (workload,) = fake.cluster.items("workloads")
    fake.cluster._event(workload, "Pending", "insufficient unused quota")
    status = runner.status(handle)
    assert "insufficient unused quota" in status.msg and "hidden" not in status.msg
    runner.cancel(handle)


@pytest.mark.parametrize(("least", "noted"), [(1, "1"), (2, None), (3, None)])
def test_a_part_that_is_all_is_left_out(
    fake: Any, runner: Runner, shell: Any, eventually: Any, least: int, noted: str | None
) -> None:
    """Kueue refuses a part that is not smaller than the whole."""
    cfg = {"queue_min_parallelism": least, "jobset": "never"}
    handle = queued(fake, runner, shell("true", replicas=2), eventually, **cfg)
    (job,) = fake.cluster.items("jobs")
    found = job["metadata"]["annotations"].get("kueue.x-k8s.io/job-min-parallelism")
    assert found == noted
    runner.cancel(handle)


@pytest.mark.parametrize(
    ("jobset", "policy", "installed", "named"),
    [
        ("never", RetryPolicy.APPLICATION, True, "jobset=never"),
        ("auto", RetryPolicy.ROLE, True, r"roles\[0\].retry_policy=ROLE"),
        ("auto", RetryPolicy.APPLICATION, False, "install JobSet"),
    ],
)
def test_roles_that_cannot_wait_together(
    fake: Any, runner: Runner, jobset: str, policy: RetryPolicy, installed: bool, named: str
) -> None:
    """Several roles in a queue need a JobSet, and the reason why there can be none is named."""
    if not installed:
        fake.cluster.jobsets = None
    first = Role("main", "i", entrypoint="true", num_replicas=2, max_retries=1)
    first.retry_policy = policy
    app = AppDef("a", [first, Role("other", "i", entrypoint="true")])
    with pytest.raises(UnsupportedFeature, match=named) as caught:
        runner.run(app, "kubernetes", {"queue": "gpus", "jobset": jobset})
    assert ("install" in str(caught.value)) is not installed
    assert not fake.snapshot()
