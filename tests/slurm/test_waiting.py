"""Why a job waits is said in words, with the expected start, and what can never start is known."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from transload.errors import SubmitError
from transload.runner import Runner
from transload.specs import AppDef, AppState, Resource
from transload_slurm.jobs import Job
from transload_slurm.waiting import expected_start, in_words, meaning, remedy

ShellApp = Callable[..., AppDef]


def _waits(runner: Runner, handle: str, eventually: Any, words: str) -> str:
    """Return the message of a job that waits, once it holds certain words."""

    def message() -> str:
        status = runner.status(handle)
        assert status is not None and not status.is_terminal()
        return status.msg if words in status.msg else ""

    found: str = eventually(message, 30)
    return found


def test_more_nodes_than_the_partition_has(
    runner: Runner, shell_app: ShellApp, eventually: Any
) -> None:
    """What to type, in place of a word for ever."""
    app = shell_app("true", num_replicas=5)
    handle = runner.run(app, "slurm", {"nodes": 5, "partition": "main"})
    said = _waits(runner, handle, eventually, "never start")
    assert "(PartitionNodeLimit)" in said or "(PartitionConfig)" in said
    assert "-c partition=NAME" in said
    status = runner.status(handle)  # Slurm may have another word for the reason by now
    assert status is not None and status.why_waiting() == status.msg


@pytest.mark.parametrize(
    "resource",
    [
        Resource(cpu=40, gpu=-1, memMB=-1),
        Resource(cpu=1, gpu=-1, memMB=20000),
        Resource(cpu=1, gpu=8, memMB=-1),
    ],
)
def test_more_than_any_node_has(runner: Runner, shell_app: ShellApp, resource: Resource) -> None:
    """What sbatch refuses is an error that says what the largest node has."""
    with pytest.raises(SubmitError, match="its largest nodes have 16 CPUs, 8000 MB") as caught:
        runner.run(shell_app("true", resource=resource), "slurm")
    assert not caught.value.transient


def test_gpus_of_a_type_that_no_node_has(runner: Runner, shell_app: ShellApp) -> None:
    """The GPUs that there are are named, and how to take any."""
    app = shell_app("true", resource=Resource(cpu=1, gpu=1, memMB=-1))
    with pytest.raises(SubmitError, match="its largest nodes have .*, gpu:4; .*-c gpu_type="):
        runner.run(app, "slurm", {"gpu_type": "a100", "partition": "main"})


def test_a_partition_that_is_not_there(runner: Runner, shell_app: ShellApp) -> None:
    """Those that are there are named."""
    with pytest.raises(SubmitError, match="there are: gpu, main, other; name another"):
        runner.run(shell_app("true"), "slurm", {"partition": "gpuu"})


@pytest.mark.parametrize(
    ("complaint", "typed"),
    [
        ("Invalid account or account/partition combination specified", "-c account=NAME"),
        ("Invalid qos specification", "-c qos=NAME"),
        ("Invalid feature specification", "-c constraint=NAME"),
        ("Job violates accounting/QOS policy (job submit limit, ...)", "wait for your jobs to end"),
        ("Requested reservation is invalid", "-c reservation=NAME"),
        ("Invalid node name specified", "-c nodelist=NAMES"),
        ("Something else", ""),
    ],
)
def test_what_sbatch_refuses_by_a_name(complaint: str, typed: str) -> None:
    """Its words are followed by what to type, where that is known."""
    assert typed in remedy(complaint)
    assert bool(typed) == bool(remedy(complaint))


def test_busy_nodes_and_the_expected_start(
    runner: Runner, shell_app: ShellApp, eventually: Any
) -> None:
    """A waiting job says when Slurm expects to start it. A running job says its limit."""
    cfg = {"exclusive": True, "nodes": 3, "ntasks_per_node": 1, "time": "10"}
    before = time.time()
    first = runner.run(shell_app("sleep 600", num_replicas=3), "slurm", cfg)
    eventually(lambda: runner.status(first).state is AppState.RUNNING, 30)  # type: ignore[union-attr]
    second = runner.run(shell_app("true"), "slurm", {"exclusive": True, "time": "5"})
    said = _waits(runner, second, eventually, "expected to start at")
    assert "other jobs have the nodes that it needs (Resources)" in said
    found = re.search(r"expected to start at (.{16} [+-]\d{4})$", said)
    assert found is not None
    start = datetime.strptime(found[1], "%Y-%m-%d %H:%M %z").timestamp()
    assert before + 570 <= start <= time.time() + 720
    status = eventually(lambda: (s := runner.status(first)) and s.ends_by and s, 30)
    assert status.time_limit == pytest.approx(600, abs=1)
    assert status.ends_by == pytest.approx(before + 600, abs=30)


def test_the_job_s_own_limit_comes_first(
    runner: Runner, shell_app: ShellApp, eventually: Any
) -> None:
    """The status has AppDef.timeout, which is shorter than Slurm's limit."""
    handle = runner.run(shell_app("sleep 600", timeout=90.0), "slurm")
    status = eventually(lambda: (s := runner.status(handle)) and s.ends_by and s, 30)
    assert status.time_limit == 90.0
    assert status.ends_by == pytest.approx(time.time() + 90, abs=30)


def test_held_and_dependent_jobs(runner: Runner, shell_app: ShellApp, eventually: Any) -> None:
    """A hold says how it is lifted, a dependency that something else has to end first."""
    held = runner.run(shell_app("true"), "slurm", {"sbatch_args": ["--hold"]})
    said = _waits(runner, held, eventually, "JobHeldUser")
    assert re.search(r"`scontrol release \d+` lets it start \(JobHeldUser\)", said)
    number = re.findall(r"as job (\d+)", said)[0]
    after = runner.run(shell_app("true"), "slurm", {"dependency": f"afterok:{number}"})
    _waits(runner, after, eventually, "a job that it depends on has not ended (Dependency)")


def test_kept_for_maintenance(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Any
) -> None:
    """Nodes that are about to be serviced start no job that would last into that time."""
    made = cluster.tool(
        "scontrol",
        *("create", "reservation", "reservationname=service", "starttime=now+5minutes"),
        *("duration=60", "flags=maint,ignore_jobs", "nodes=ALL", "users=root"),
    )
    assert "service" in made
    try:
        handle = runner.run(shell_app("true"), "slurm", {"time": "60"})
        said = _waits(runner, handle, eventually, "Reserved for maintenance")
        assert "for maintenance: ask for less time (-c time=), or wait" in said
        short = runner.run(shell_app("true"), "slurm", {"time": "1"})
        status = runner.wait(short, timeout=60)
        assert status is not None and status.state is AppState.SUCCEEDED
    finally:
        cluster.tool("scontrol", "delete", "reservation=service")


_WAITING = """
AccountNotAllowed AccountingPolicy AssocGrpGRESRunMinutes AssocMaxSubmitJobLimit AssociationJobLimit
AssociationResourceLimit AssociationTimeLimit BadConstraints BeginTime BurstBufferOperation
BurstBufferResources BurstBufferStageIn Cleaning Constraints DeadLine Dependency FedJobLock
FrontEndDown InvalidAccount InvalidQOS JobHeldAdmin JobHeldUser JobHoldMaxRequeue
JobLaunchFailure Licenses MaxJobsPerAccount MaxMemPerLimit MaxMemoryRunMinsPerUser MaxPoweredUpNodes
MpiPortsBusy NodeDown PartitionConfig PartitionDown PartitionInactive PartitionNodeLimit
PartitionTimeLimit PowerNotAvail PowerReserved Priority Prolog QOSGrpBillingMinutes QOSJobLimit
QOSMaxGRESPerNode QOSMinMemory QOSNotAllowed QOSResourceLimit QOSTimeLimit QOSUsageThreshold
ReqNodeNotAvail Reservation ReservationDeleted ReservationInvalid Resources SchedDefer SystemFailure
"""
"""The reasons of Slurm 22.05 to 25.11 for which a job waits, one of each family of limits."""


@pytest.mark.unit
@pytest.mark.parametrize(
    "reason",
    [
        *_WAITING.split(),
        "ReqNodeNotAvail, UnavailableNodes:node[1-2]",
        "ReqNodeNotAvail, May be reserved for other job",
        "ReqNodeNotAvail(Unavailable:node1)",
    ],
)
def test_every_reason_has_words(reason: str) -> None:
    """No reason of Slurm is left to be looked up, and those that name nodes name them."""
    job = Job("7", "a", "PENDING", reason)
    words = meaning(job)
    assert " " in words and in_words(job).startswith(f"{words} ({reason})")
    if "node[" in reason or "node1" in reason:
        assert reason[reason.index("node", 15) :].rstrip(")") in words


@pytest.mark.unit
@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("QOSMaxWallDurationPerJobLimit", "it asks for more than the QOS lets one job have"),
        ("AssocMaxCpuPerJobLimit", "it asks for more than the account lets one job have"),
        ("QOSMaxJobsPerUserLimit", "it waits until fewer of your jobs run: the QOS limits them"),
        ("AssocGrpGRES", "it waits until other jobs have ended that share a limit of the account"),
        ("ANewerReason", ""),
    ],
)
def test_families_of_reasons(reason: str, words: str) -> None:
    """Limits of accounts and QOS have names built of parts. An unknown reason stays as it is."""
    job = Job("7", "a", "PENDING", reason)
    assert meaning(job) == words
    assert reason in in_words(job)


@pytest.mark.unit
def test_rounding_of_an_expected_start() -> None:
    """A near start is rounded to the minute, a later one to ten, and one in a year has no word."""
    now = datetime(2026, 1, 1, 12, 0, 30).timestamp()

    def told(start: str) -> str:
        return expected_start(Job("7", "a", "PENDING", "Priority", start=start), now)[:16]

    assert told("2026-01-01T12:10:31") == "2026-01-01 12:11"
    assert told("2026-01-01T15:01:00") == told("2026-01-01T15:09:59") == "2026-01-01 15:10"
    assert told("2027-01-01T12:00:00") == told("N/A") == told("2026-01-01T11:00:00") == ""
