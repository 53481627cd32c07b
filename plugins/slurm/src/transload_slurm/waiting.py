"""Why a job waits, in words, and what to do where it can never start."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from transload.errors import SchedulerUnavailable
from transload_slurm import commands
from transload_slurm.jobs import Job, epoch_of

_TIMEOUT_S: Final = 30.0
_FAR_S: Final = 300 * 86400.0
"""Seconds to a start that is too far away to count, as that of a job behind one without a limit."""
_ROUGH_S: Final = 3600.0
_ROUGH_STEP_S: Final = 600.0
_SOON_STEP_S: Final = 60.0

REASONS: Final[Mapping[str, str]] = {
    "AccountNotAllowed": "its account may not use this partition: name another (-c account=NAME)",
    "AccountingPolicy": "a limit of its account or of its QOS does not let it start",
    "AssociationJobLimit": "as many jobs of its account run as may",
    "AssociationResourceLimit": "jobs of its account have used up what they may use together",
    "AssociationTimeLimit": "its account has used up its time",
    "BadConstraints": "no node of the partition is as it asks",
    "BeginTime": "its earliest start has not come",
    "BurstBufferOperation": "what it asks of the burst buffer has failed: ask an administrator",
    "BurstBufferResources": "other jobs have the burst buffer that it asks for",
    "BurstBufferStageIn": "its files are being copied to the burst buffer",
    "Cleaning": "its nodes are still being cleaned up after its earlier start",
    "Constraints": "what it asks for is not to be had for now",
    "DeadLine": "it could not end before its deadline",
    "Dependency": "a job that it depends on has not ended",
    "FedJobLock": "the clusters of its federation agree on which of them starts it",
    "FrontEndDown": "no front end is up that could start it",
    "InvalidAccount": "there is no such account: name another (-c account=NAME)",
    "InvalidQOS": "there is no such QOS: name another (-c qos=NAME)",
    "JobHeldAdmin": "an administrator holds it: ask them",
    "JobHeldUser": "it is held: `scontrol release {job}` lets it start",
    "JobHoldMaxRequeue": "Slurm has started it again too often: `scontrol release {job}` goes on",
    "JobLaunchFailure": "it could not be launched",
    "job requeued in held state": "somebody holds it: `scontrol release {job}` lets it start",
    "launch failed requeued held": (
        "it could not be launched, and is held: `scontrol release {job}` tries again"
    ),
    "Licenses": "other jobs have the licenses that it asks for",
    "MaxMemPerLimit": "it asks for more memory than a CPU or a node may have: ask for less (--mem)",
    "MaxPoweredUpNodes": "as many nodes are powered up as may be",
    "MpiPortsBusy": "no ports are free for its MPI",
    "NodeDown": "a node that it needs is down",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        "nodes that it needs are down, drained, or kept for jobs of partitions that go first"
    ),
    "PartitionConfig": "the partition has not what it asks for",
    "PartitionDown": "its partition is down: it takes jobs, and starts none for now",
    "PartitionInactive": "its partition is inactive: it starts none for now",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives to a job",
    "PartitionTimeLimit": "it asks for more time than the partition gives to a job",
    "PowerNotAvail": "there is not enough power for its nodes",
    "PowerReserved": "the power for its nodes is reserved",
    "Priority": "jobs of higher priority go first",
    "Prolog": "its nodes are being prepared",
    "QOSJobLimit": "as many jobs of its QOS run as may",
    "QOSNotAllowed": "its QOS may not use this partition: name another (-c qos=NAME)",
    "QOSResourceLimit": "jobs of its QOS have used up what they may use together",
    "QOSTimeLimit": "its QOS has used up its time",
    "QOSUsageThreshold": "more has been used than its QOS allows: name another (-c qos=NAME)",
    "ReqNodeNotAvail": "nodes that it needs are not available",
    "ReqNodeNotAvail, May be reserved for other job": "nodes that it needs are kept for another job",
    "ReqNodeNotAvail, Reserved for maintenance": (
        "nodes that it needs are kept for maintenance: ask for less time (-c time=), or wait"
    ),
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation is gone: name another (-c reservation=NAME)",
    "ReservationInvalid": "its reservation cannot be used: name another (-c reservation=NAME)",
    "Resources": "other jobs have the nodes that it needs",
    "SchedDefer": "it was to start at once, which this cluster does not do",
    "SystemFailure": "Slurm, a disk or the network has failed: ask an administrator",
}
"""Reason of Slurm → what it means, for a person."""

_FAMILIES: Final[Sequence[tuple[str, str, str]]] = (
    ("Max", "PerJob", "asks for more than {whose} lets one job have"),
    ("Max", "PerNode", "asks for more on a node than {whose} lets one job have"),
    ("Min", "", "asks for less than {whose} lets one job have"),
    ("Max", "PerUser", "waits until fewer of your jobs run: {whose} limits them"),
    ("Max", "PerAccount", "waits until fewer jobs of its account run: {whose} limits them"),
    ("Max", "", "waits until fewer jobs run: {whose} limits them"),
    ("Grp", "", "waits until other jobs have ended that share a limit of {whose}"),
)
"""Beginning and part of a reason, behind ``Assoc`` or ``QOS`` → what it means."""

_WHOSE: Final[Mapping[str, str]] = {"Assoc": "the account", "QOS": "the QOS", "Max": "the QOS"}
"""How the name of a limit begins → whose it is. Newer limits of a QOS leave its name out."""

_NODES_AWAY: Final = re.compile(r"ReqNodeNotAvail\W+Unavailable(?:Nodes)?:([^)]+)")

NEVER: Final = frozenset(
    {"BadConstraints", "PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit"}
)
"""Reasons that last, since the partition has not what the job asks for."""

_ASSOCIATIONS: Final = (
    "on the cluster, this lists yours: sacctmgr show assoc user=$USER format=account,partition,qos"
)

_ASK_LESS: Final = (
    "ask for less (--replicas, --cpu, --mem, --gpu, -c time=), for any GPU (-c gpu_type=), or for "
    "another partition (-c partition=NAME); on the cluster, this lists what their nodes have: "
    "sinfo -o '%P %c %m %G'"
)

_REFUSED: Final = (
    *(
        (words, _ASK_LESS)
        for words in (
            "node configuration is not available",
            "can not be satisfied",
            "node count specification invalid",
            "time limit is invalid",
            "invalid generic resource",
        )
    ),
    ("invalid partition", "name another (-c partition=NAME)"),
    ("invalid account", f"name another (-c account=NAME, -c partition=NAME); {_ASSOCIATIONS}"),
    ("invalid qos", f"name another (-c qos=NAME); {_ASSOCIATIONS}"),
    (
        "invalid feature",
        "name another (-c constraint=NAME); on the cluster, this lists them: sinfo -o '%P %f'",
    ),
    (
        "reservation is invalid",
        "name another (-c reservation=NAME); on the cluster, this lists them: scontrol show res",
    ),
    (
        "invalid node name",
        (
            "name others (-c nodelist=NAMES, -c exclude=NAMES); on the cluster, this lists them: "
            "sinfo -N"
        ),
    ),
    (
        "accounting/qos policy",
        (
            "a limit of the account or the QOS is reached: ask for less (-c time=, --replicas, --cpu, "
            f"--mem, --gpu), or wait for your jobs to end; {_ASSOCIATIONS}"
        ),
    ),
)
"""Part of what ``sbatch`` says of what it refuses → what to type."""


def meaning(job: Job) -> str:
    """Return what the reason for which a job waits means, or ``""`` for one that is not known."""
    known = REASONS.get(job.reason)
    if known is not None:
        return known.format(job=job.id)
    away = _NODES_AWAY.match(job.reason)
    if away:
        return f"nodes that it needs are not available: {away[1]}"
    for start, whose in _WHOSE.items():
        if not job.reason.startswith(start):
            continue
        rest = job.reason.removeprefix(start)
        if start == "Max":
            rest = job.reason
        for beginning, part, text in _FAMILIES:
            if rest.startswith(beginning) and part in rest:
                return f"it {text.format(whose=whose)}"
    return ""


def expected_start(job: Job, now: float | None = None) -> str:
    """Return when Slurm expects a waiting job to start, or ``""`` if it does not say.

    A time that is far away is rounded up, since Slurm reckons it anew every half minute.
    """
    if now is None:
        now = time.time()
    start = epoch_of(job.start)
    if start is None or not 0 < start - now < _FAR_S:
        return ""
    step = _SOON_STEP_S
    if start - now > _ROUGH_S:
        step = _ROUGH_STEP_S
    rounded = -(-start // step) * step
    return f"{datetime.fromtimestamp(rounded).astimezone():%Y-%m-%d %H:%M %z}"


def in_words(job: Job) -> str:
    """Return in one line why a job waits and when it should start, or ``""`` if that is unknown."""
    parts = [job.reason]
    known = meaning(job)
    if known:
        parts = [f"{known} ({job.reason})"]
    start = expected_start(job)
    if job.reason in NEVER:
        parts.append(f"it can never start like this: {_ASK_LESS}")
    elif start:
        parts.append(f"expected to start at {start}")
    return "; ".join(filter(None, parts))


def remedy(complaint: str, partition: str = "") -> str:
    """Return what to type where ``sbatch`` refused a job, or ``""`` if that is not known.

    Args:
        complaint: what ``sbatch`` said.
        partition: the one that was asked for, or ``""`` for the default one.
    """
    for words, advice in _REFUSED:
        if words not in complaint.lower():
            continue
        there = ""
        if advice is _ASK_LESS:
            there = _largest(partition)
        elif words == "invalid partition":
            there = _partitions()
        return "; ".join(filter(None, (there, advice)))
    return ""


def _largest(partition: str) -> str:
    """Return what the largest nodes of a partition have, or ``""`` if Slurm does not say."""
    command = ["sinfo", "-h", "-e", "-o", "%P|%c|%m|%G"]
    if partition:
        command += ["-p", partition]
    rows = []
    for line in _lines(command):
        name, _, rest = line.partition("|")
        if partition or name.endswith("*"):
            rows.append(rest.split("|"))
    if not rows:
        return ""
    cpus = max(int(row[0]) for row in rows)
    memory = max(int(row[1]) for row in rows)
    gres = {re.sub(r"\([^)]*\)", "", row[2]) for row in rows}  # "(null)", "gpu:4(S:0-1)"
    there = [f"{cpus} CPUs", f"{memory} MB of memory", *sorted(filter(None, gres))]
    return f"its largest nodes have {', '.join(there)}"


def _partitions() -> str:
    """Return which partitions there are, as one phrase, or ``""`` if Slurm does not say."""
    names = sorted(set(_lines(["sinfo", "-h", "-o", "%R"])))
    if not names:
        return ""
    return f"there are: {', '.join(names)}"


def _lines(command: list[str]) -> Sequence[str]:
    """Return what a tool of Slurm prints, or nothing if it fails."""
    try:
        answer = commands.run(command, _TIMEOUT_S)
    except SchedulerUnavailable:
        return []
    if answer.code != 0:
        return []
    return answer.out.split()
