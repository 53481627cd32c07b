"""The run options that are options of ``sbatch`` under another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PER_ROLE: Final[Mapping[str, tuple[str, type | object, str]]] = {
    "partition": ("--partition", str, "partition (queue)"),
    "account": ("--account", str, "account that is charged"),
    "qos": ("--qos", str, "quality of service"),
    "time": (
        "--time",
        str,
        "limit of time: minutes, [hours:]minutes:seconds or days-hours[:minutes[:seconds]]",
    ),
    "constraint": ("--constraint", str, "features that the nodes must have"),
    "nodes": ("--nodes", int, "number of nodes over which the replicas of a role are spread"),
    "ntasks_per_node": ("--ntasks-per-node", int, "replicas of a role on one node"),
    "reservation": ("--reservation", str, "reservation to run in"),
    "nodelist": ("--nodelist", str, "nodes that must be among those given"),
    "exclude": ("--exclude", str, "nodes that must not be given"),
    "exclusive": ("--exclusive", bool, "share the nodes with no other job"),
}
"""Flag of ``sbatch``, type and help of each option.

A role may set its own by metadata, such as ``{"slurm.partition": "gpu"}``.
"""

PER_JOB: Final[Mapping[str, tuple[str, type | object, str]]] = {
    "dependency": ("--dependency", str, "jobs to wait for, for example afterok:1234"),
    "begin": ("--begin", str, "earliest start, for example now+1hour"),
    "nice": ("--nice", int, "lower (or, for operators, raise) the priority"),
    "mail_user": ("--mail-user", str, "whom Slurm writes mail"),
    "mail_type": ("--mail-type", str, "when Slurm writes mail, for example END,FAIL"),
}
"""Likewise, for the job as a whole."""
