"""What a message about the cluster's refusal tells a person to do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from transload.cli import main
from transload.errors import SchedulerUnavailable
from transload.specs import AppDef, AppState, Role
from transload_kubernetes.advice import on_error, on_waiting
from transload_kubernetes.cluster import ClusterError
from transload_kubernetes.pod import PYTHON

# as a cluster of version 1.36 worded them
FORBIDDEN = (
    'configmaps is forbidden: User "{}" cannot list resource "configmaps" in API group "" in the '
    'namespace "team"'
)
ROOT = "CreateContainerConfigError: container has runAsNonRoot and image will run as root"
LIMIT = (
    'Error creating: pods "{}" is forbidden: maximum memory usage per Container is 1Gi, but limit '
    "is 2Gi"
)
NO_ACCOUNT = (
    'Error creating: pods "a-main-0-" is forbidden: error looking up service account '
    'default/trainer: serviceaccount "trainer" not found'
)


@pytest.mark.parametrize(
    ("status", "message", "advice"),
    [
        (404, 'namespaces "taem" not found', "kubectl create namespace taem"),
        (404, 'secrets "taem" not found', ""),
        (
            403,
            FORBIDDEN.format("system:serviceaccount:airflow:triggerer"),
            "-n team --role=transload-submit --serviceaccount=airflow:triggerer",
        ),
        (403, FORBIDDEN.format("ann"), "ask the cluster's administrator for the Role"),
        (403, 'pods is forbidden: User "ann" cannot list pods', "for the rights in docs/"),
        (500, "etcdserver: leader changed", ""),
    ],
)
def test_an_error_ends_with_what_to_type(status: int, message: str, advice: str) -> None:
    """A missing namespace or right comes with a command, and other errors stay as they are."""
    said = on_error(ClusterError(status, "", message))
    assert said.endswith(advice) or advice in said
    assert bool(said) == bool(advice)


@pytest.mark.parametrize(
    ("why", "advice"),
    [
        ('ErrImagePull: failed to pull and unpack image "a:1"', "image_pull_secrets"),
        (NO_ACCOUNT, "run option service_account"),
        ("0/1 nodes are available: 1 Insufficient memory", ""),
        (ROOT, "runAsUser"),
        (LIMIT, "--mem"),
    ],
)
def test_a_reason_to_wait_comes_with_its_remedy(why: str, advice: str) -> None:
    """What only a person can change is named, and what time may change needs no remedy."""
    assert advice in (on_waiting(why) or "")
    assert (on_waiting(why) is None) is (not advice)


def test_a_service_account_that_does_not_exist(
    runner: Any,
    fake: Any,
    eventually: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The status says what to do, and ``--startup-timeout`` ends the job."""

    def no_pod(job: dict[str, Any], *args: Any) -> None:
        fake.cluster._event(job, "FailedCreate", NO_ACCOUNT)

    fake.cluster._start_pod = no_pod
    app = AppDef("a", [Role("main", "i", entrypoint="true")])
    handle = runner.run(app, "kubernetes", {"service_account": "trainer"})
    says = "run option service_account"
    status = eventually(lambda: says in (found := runner.status(handle)).msg and found, 20)
    assert status.state is AppState.SUBMITTED
    assert f"to end it: transload cancel {handle}" in status.msg
    runner.cancel(handle)
    waits = ["run", "-s", "kubernetes", "--image", "i", "--startup-timeout", "1s", "--", "true"]
    assert main(waits) not in (0, 5)
    assert "it did not start within 1.0 s; cancelling it" in capsys.readouterr().err
    ends = [runner.status(row.app_handle) for row in runner.list("kubernetes")]
    assert [each.state for each in ends] == [AppState.CANCELLED] * 2
    assert all('"trainer" not found' in each.msg and "to end it" not in each.msg for each in ends)


def test_what_forbids_a_pod_is_said_once(fake: Any, runner: Any, eventually: Any) -> None:
    """A pod that is tried again and again under new names is one reason, which no time mends."""

    def no_pod(job: dict[str, Any], *args: Any) -> None:
        for name in ("a-main-0-x7k2p", "a-main-0-b2b2b"):
            fake.cluster._event(job, "FailedCreate", LIMIT.format(name))

    fake.cluster._start_pod = no_pod
    handle = runner.run(AppDef("a", [Role("main", "i", entrypoint="true")]), "kubernetes")
    says = "maximum memory usage per Container is 1Gi"
    status = eventually(lambda: says in (found := runner.status(handle)).msg and found, 20)
    assert "a-main-0-" not in status.msg
    assert f"transload cancel {handle}" in status.msg
    runner.cancel(handle)


@pytest.mark.parametrize(
    ("numbers", "never"),
    [
        ("requested: cpu=2, used: cpu=0, limited: cpu=1", "quota team has cpu=1 in all"),
        ("requested: cpu=1, used: cpu=500m, limited: cpu=1", ""),
        (
            "requested: pods=1,requests.memory=2Gi, used: pods=0, limited: pods=9,requests.memory=1G",
            "quota team has requests.memory=1G in all",
        ),
        ("requested: pods=1, used: pods=9, limited: pods=9", ""),
    ],
)
def test_a_quota_that_can_never_hold_a_pod(
    fake: Any, runner: Any, eventually: Any, numbers: str, never: str
) -> None:
    """It is named with what it has in all, and one that is used up is waited for."""

    def no_pod(job: dict[str, Any], *args: Any) -> None:
        text = f'pods "a-main-0-x7k2p" is forbidden: exceeded quota: team, {numbers}'
        fake.cluster._event(job, "FailedCreate", f"Error creating: {text}")

    fake.cluster._start_pod = no_pod
    handle = runner.run(AppDef("a", [Role("main", "i", entrypoint="true")]), "kubernetes")
    status = eventually(lambda: numbers in (found := runner.status(handle)).msg and found, 20)
    assert ("can never start" in status.msg) is bool(never)
    assert never in status.msg
    assert (f"transload cancel {handle}" in status.msg) is bool(never)
    runner.cancel(handle)


_NO_VICTIM = "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
_NO_HELP = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "never"),
    [
        (f"0/3 nodes are available: 3 Insufficient nvidia.com/gpu. {_NO_VICTIM}", False),
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. no new claims to deallocate, "
            + _NO_HELP,
            True,
        ),
        (f"0/3 nodes are available: 2 Insufficient cpu, 3 Insufficient memory. {_NO_HELP}", True),
        (
            f"0/3 nodes are available: 1 node(s) had a taint {{gpu: a}}, 2 Insufficient cpu. {_NO_HELP}",
            False,
        ),
    ],
)
def test_what_no_node_takes_is_said(
    fake: Any, runner: Any, eventually: Any, message: str, never: bool
) -> None:
    """The status has the words of the cluster's scheduler, and says if time cannot help."""
    fake.cluster.unschedulable = message
    app = AppDef("a", [Role("main", "i", entrypoint="true")])
    handle = runner.run(app, "kubernetes", {"node_selector": {"unschedulable": "x"}})
    status = eventually(lambda: message in (found := runner.status(handle)).msg and found, 20)
    assert status.state is AppState.PENDING
    assert ("can never start" in status.msg) is never
    assert ("--mem" in status.msg) is never
    runner.cancel(handle)


def test_an_image_without_python(tmp_path: Path) -> None:
    """The last line of the job says that, and what to name."""
    environment = {"PATH": str(tmp_path)}
    command = ["/bin/sh", *PYTHON[1:], "train.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert "this image has no Python; name another one: --image" in done.stderr
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\necho "$0" "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"{python} train.py\n"


def test_who_may_not_look_is_told_how_to(scheduler: Any, fake: Any) -> None:
    """A question that the cluster refuses says which rights to ask for, as a submit does."""
    fake.cluster.rights -= {("", "configmaps", "list")}
    with pytest.raises(SchedulerUnavailable, match=r"403.*docs/schedulers/kubernetes.md#rights"):
        scheduler.list()
