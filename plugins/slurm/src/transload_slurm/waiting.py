"""Why a job waits, in words, and what to do where it can never start."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload_slurm import commands
from transload_slurm.jobs import Job, epoch_of

_TIMEOUT_S: Final = 30.0
_KNOWN_FOR_S: Final = 600.0
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
    "JobArrayTaskLimit": "as many of its replicas run as array_parallel allows",
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

_REFUSED: Final = (
    "node configuration is not available",
    "can not be satisfied",
    "node count specification invalid",
    "time limit is invalid",
    "invalid generic resource",
)
"""Parts of what ``sbatch`` says of a request that no node can meet."""


_ASSOCIATIONS: Final = (
    "on the cluster, this lists yours: sacctmgr show assoc user=$USER format=account,partition,qos"
)

_WRONG_NAMES: Final = (
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
"""Part of what ``sbatch`` says of a name that is wrong, or of a limit → what to type."""


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


def in_words(job: Job, never: str = "") -> str:
    """Return in one line why a job waits and when it should start, or ``""`` if that is unknown.

    Args:
        job: what Slurm says of it.
        never: why it can never start, if that is so.
    """
    parts = [job.reason]
    known = meaning(job)
    if known:
        parts = [f"{known} ({job.reason})"]
    start = expected_start(job)
    if never:
        parts.append(never)
    elif start:
        parts.append(f"expected to start at {start}")
    return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class _Nodes:
    """Nodes of a partition that are alike.

    Args:
        count: how many there are.
        cpus: CPUs of each.
        memory: megabytes of each.
        gpus: GPUs of each.
        kinds: the types of its GPUs, as far as Slurm names them.
        works: whether jobs can run there now.
    """

    count: int
    cpus: int
    memory: int
    gpus: int
    kinds: Sequence[str]
    works: bool


@dataclass(frozen=True)
class Partition:
    """What a partition has.

    Args:
        name: its name.
        nodes: its nodes.
        max_time: the longest limit of time that it gives, as Slurm writes it.
        max_nodes: how many nodes it gives to a job at most, as Slurm writes it.
    """

    name: str
    nodes: Sequence[_Nodes]
    max_time: str
    max_nodes: str

    def text(self) -> str:
        """Return what it has, as one phrase."""
        count = sum(each.count for each in self.nodes)
        away = sum(each.count for each in self.nodes if not each.works)
        text = f"partition {self.name!r} has {count} node(s)"
        if away:
            text += f", {away} of them down or drained"
        if self.nodes:
            cpus = max(each.cpus for each in self.nodes)
            memory = max(each.memory for each in self.nodes)
            gpus = max(each.gpus for each in self.nodes)
            text += f"; its largest have {cpus} CPUs, {memory} MB of memory, {gpus} GPUs"
            kinds = sorted({kind for each in self.nodes for kind in each.kinds})
            if kinds:
                text += f" ({', '.join(kinds)})"
        limits = []
        if self.max_time not in ("", "infinite", "UNLIMITED"):
            limits.append(f"{self.max_time} of time")
        if self.max_nodes not in ("", "infinite", "UNLIMITED"):
            limits.append(f"{self.max_nodes} node(s)")
        if limits:
            text += f"; a job may have {' and '.join(limits)} at most"
        return text


def partition(name: str = "") -> Partition | None:
    """Return what a partition has, or None if it is not known.

    Args:
        name: its name, or ``""`` for the default partition.
    """
    command = ["sinfo", "-h", "-e", "-o", "%P|%D|%c|%m|%G|%T|%l|%s"]
    if name:
        command += ["-p", name]
    try:
        answer = commands.run(command, _TIMEOUT_S)
    except SchedulerUnavailable:
        return None
    rows = [line.strip().split("|") for line in answer.out.splitlines() if line.count("|") == 7]
    if not name:
        rows = [row for row in rows if row[0].endswith("*")]
    if answer.code != 0 or not rows:
        return None
    nodes = [_nodes(row) for row in rows]
    sizes = rows[0][7]
    most = sizes.rpartition("-")[2]
    return Partition(rows[0][0].rstrip("*"), nodes, rows[0][6], most)


def _nodes(row: Sequence[str]) -> _Nodes:
    state = row[5].rstrip("*~#$@+!%^-")
    return _Nodes(
        count=_number(row[1]),
        cpus=_number(row[2]),
        memory=_number(row[3]),
        gpus=_gpus(row[4]),
        kinds=_kinds(row[4]),
        works=not state.startswith(("down", "drain", "fail", "unknown")) and "*" not in row[5],
    )


def _number(text: str) -> int:
    digits = text.rstrip("+")
    if not digits.isdigit():
        return 0
    return int(digits)


def _gpus(text: str) -> int:
    """Return the number of GPUs in ``gpu:a100:4(S:0-1),tmpdisk:100``."""
    count = 0
    for item in text.split(","):
        words = item.partition("(")[0].split(":")
        if words[0] == "gpu":
            count += _number(words[-1])
    return count


def _kinds(text: str) -> list[str]:
    """Return the types of GPUs in ``gpu:a100:4(S:0-1),gpu:2``."""
    items = [item.partition("(")[0].split(":") for item in text.split(",")]
    return [words[1] for words in items if words[0] == "gpu" and len(words) == 3]


_WHAT_TO_TYPE: Final = (
    "ask for less (--replicas, --cpu, --mem, --gpu, -c time=) or for another partition "
    "(-c partition=NAME; `sinfo` lists them)"
)


def asked(app: Mapping[str, Any], cfg: Mapping[str, Any]) -> str:
    """Return what a job asks for, as one phrase.

    Args:
        app: its definition, as in its record.
        cfg: its run options.
    """
    parts = []
    for role in app.get("roles", ()):
        resource = role.get("resource") or {}
        one = [f"{max(1, int(resource.get('cpu') or 1))} CPU(s)"]
        if (resource.get("memMB") or 0) > 0:
            one.append(f"{resource['memMB']} MB")
        if (resource.get("gpu") or 0) > 0:
            one.append(f"{resource['gpu']} GPU(s){_of_type(role, cfg)}")
        parts.append(f"{role.get('num_replicas', 1)} replica(s) of {', '.join(one)}")
    text = " and ".join(parts)
    for name in ("nodes", "ntasks_per_node", "constraint", "nodelist", "time"):
        if cfg.get(name):
            text += f", {name}={cfg[name]}"
    return text


def _of_type(role: Mapping[str, Any], cfg: Mapping[str, Any]) -> str:
    """Return which GPUs a role asks for, as the end of a phrase, or ``""`` for any."""
    kind = (role.get("metadata") or {}).get("slurm.gpu_type", cfg.get("gpu_type"))
    if not kind:
        return ""
    return f" of type {kind!r} (gpu_type; -c gpu_type= takes any)"


def advice(app: Mapping[str, Any], cfg: Mapping[str, Any], name: str = "") -> str:
    """Return what was asked for, what the partition has, and what to type, or ``""`` if not known.

    Args:
        app: the definition of the job, as in its record.
        cfg: its run options.
        name: the partition, or ``""`` for the default one.
    """
    found = partition(name)
    if found is None:
        return ""
    return f"asked for: {asked(app, cfg)}; {found.text()}: {_WHAT_TO_TYPE}"


def is_refused(complaint: str) -> bool:
    """Tell whether ``sbatch`` refused a request since nothing of the partition can meet it."""
    return any(words in complaint.lower() for words in _REFUSED)


def remedy(complaint: str) -> str:
    """Return what to type where ``sbatch`` refused a name or limit, or ``""`` if not known."""
    for words, advised in _WRONG_NAMES:
        if words in complaint.lower():
            if words == "invalid partition":
                return "; ".join(filter(None, (_partitions(), advised)))
            return advised
    return ""


def _partitions() -> str:
    """Return which partitions there are, as one phrase, or ``""`` if Slurm does not say."""
    try:
        answer = commands.run(["sinfo", "-h", "-o", "%R"], _TIMEOUT_S)
    except SchedulerUnavailable:
        return ""
    names = sorted(set(answer.out.split()))
    if answer.code != 0 or not names:
        return ""
    return f"there are: {', '.join(names)}"


def _partition_of(job: Job) -> str:
    """Return the partition in which a job waits, or ``""`` if Slurm does not say."""
    try:
        answer = commands.run(["squeue", "-h", "-o", "%P", "-j", job.id], _TIMEOUT_S)
    except SchedulerUnavailable:
        return ""
    return answer.out.strip().partition("\n")[0]


class Never:
    """What is known of jobs that can never start, so that Slurm is asked once for each."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float, str]] = {}

    def why(self, record: Mapping[str, Any], job: Job) -> str:
        """Return why a job that waits can never start, or ``""`` if it may."""
        if job.reason not in NEVER:
            return ""
        reason, at, text = self._known.get(job.id, ("", 0.0, ""))
        now = time.monotonic()
        if reason == job.reason and now - at < _KNOWN_FOR_S:
            return text
        found = advice(record["app"], record["cfg"], _partition_of(job))
        if not found:  # Slurm did not answer just now: it is asked again
            return ""
        found = f"it can never start like this; {found}"
        self._known[job.id] = (job.reason, now, found)
        return found
