"""Request notices from Slurm where Slurm itself gives them.

Its signal is TERM unless the site sends the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from transload.errors import SchedulerUnavailable, UnsupportedFeature
from transload_slurm import commands
from transload_slurm.convert import RoleRequest, SlurmRequest

_TIMEOUT_S: Final = 30.0
_SENDS: Final = "send_user_signal"
_OFF: Final = "OFF"


def with_signals(request: SlurmRequest, env: Mapping[str, str]) -> SlurmRequest:
    """Return a request that has Slurm send the signals of its notices when it pre-empts the job.

    Slurm is asked only for a role whose notice is another signal than TERM.

    Args:
        request: the request.
        env: the environment of ``sbatch``, which may name a partition.

    Raises:
        UnsupportedFeature: if the job may be pre-empted, and the site sends TERM only.
        SchedulerUnavailable: if Slurm cannot be asked.
    """
    others = [role.notice is not None and role.notice_signal != "TERM" for role in request.roles]
    if not any(others):
        return request
    config = _settings()
    if config.get("PreemptMode", _OFF).startswith(_OFF):
        return request
    sends = any(
        _SENDS in config.get(name, "") for name in ("PreemptParameters", "SlurmctldParameters")
    )
    roles = []
    for index, role in enumerate(request.roles):
        if not others[index]:
            roles.append(role)
            continue
        name = _preempting(role, env)
        if name and not sends:
            field = f"roles[{index}].notice.signal"
            raise UnsupportedFeature(
                f"{field}={role.notice_signal}: jobs of partition {name!r} may be pre-empted, and "
                "this site's Slurm sends TERM then: use TERM, or a partition that is not "
                "pre-empted (-c partition=NAME), or have the site set "
                f"PreemptParameters={_SENDS}",
                field,
            )
        roles.append(_with_signal(role))
    return replace(request, roles=roles)


def _with_signal(role: RoleRequest) -> RoleRequest:
    """Return a role for which Slurm sends the signal at a pre-emption, and not before the limit."""
    if any(option.startswith("--signal") for option in role.sbatch):
        return role
    return replace(role, sbatch=[*role.sbatch, f"--signal={role.notice_signal}@0"])


def _preempting(role: RoleRequest, env: Mapping[str, str]) -> str:
    """Return the first partition of a role whose jobs may be pre-empted, or ``""`` if none is."""
    named = env.get("SBATCH_PARTITION", "")
    for option in role.sbatch:
        if option.startswith("--partition="):
            named = option.partition("=")[2]
    answer = commands.run(["scontrol", "-o", "show", "partition"], _TIMEOUT_S)
    if answer.code != 0:
        raise SchedulerUnavailable(f"scontrol: {answer.complaint}")
    for line in answer.out.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = words.get("PartitionName", "")
        is_asked = name in named.split(",")
        if not named:
            is_asked = words.get("Default") == "YES"
        if is_asked and not words.get("PreemptMode", _OFF).startswith(_OFF):
            return name
    return ""


def _settings() -> dict[str, str]:
    """Return the settings of the controller.

    Raises:
        SchedulerUnavailable: if it cannot be asked.
    """
    answer = commands.run(["scontrol", "show", "config"], _TIMEOUT_S)
    if answer.code != 0:
        raise SchedulerUnavailable(f"scontrol: {answer.complaint}")
    found = {}
    for line in answer.out.splitlines():
        name, _, value = line.partition("=")
        found[name.strip()] = value.strip()
    return found
