"""Can Slurm be used from here, as whom, and what is missing."""

from __future__ import annotations

import getpass
import os
import shutil

from transload.errors import ConfigError, SchedulerUnavailable
from transload_slurm import commands
from transload_slurm.file_systems import file_system
from transload_slurm.store import ENV_FOLDER, ensure

Check = tuple[str, bool, str]
_TOOLS = ("sbatch", "squeue", "scancel", "scontrol", "srun")
_TIMEOUT_S = 30.0
_SHARED = f"login and compute nodes must share it ({ENV_FOLDER})"


def diagnose(home: str) -> list[Check]:
    """Return ``(what was looked at, whether it is well, what was found)`` for each point."""
    checks = [_tools(), _folder(home)]
    if checks[0][1]:
        checks += [_controller(), _partitions(), _accounting()]
    return checks


def _tools() -> Check:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        found = f"not installed here: {', '.join(missing)}"
        return "clients", False, f"{found}; {commands.NAME_A_LOGIN_NODE}"
    answer = commands.run(["sbatch", "--version"], _TIMEOUT_S)
    if answer.code != 0:
        return "clients", False, answer.complaint
    return "clients", True, answer.out.strip()


def _folder(home: str) -> Check:
    there = home
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if there != home:
        if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
            return (
                "folder",
                False,
                f"{home} cannot be made: {there} is no folder that you may write to",
            )
        return (
            "folder",
            True,
            f"{home} (made when first needed), on {file_system(there)}: {_SHARED}",
        )
    try:
        ensure(home)
        probe = f"{home}/.probe-{os.getpid()}"
        os.mkdir(probe)
        os.rmdir(probe)
    except (ConfigError, OSError) as exc:
        return "folder", False, str(exc)
    return "folder", True, f"{home}, on {file_system(home)}: {_SHARED}"


def _controller() -> Check:
    try:
        answer = commands.run(["scontrol", "ping"], _TIMEOUT_S)
        if answer.code != 0 or " UP" not in answer.out:
            return "controller", False, (answer.out.strip() or answer.complaint).splitlines()[0]
        asked = commands.run(["squeue", "-h", "--me", "-t", "all", "-o", "%i"], _TIMEOUT_S)
    except SchedulerUnavailable as exc:
        return "controller", False, str(exc)
    if asked.code != 0:
        return "controller", False, f"it is up, but does not answer {_user()}: {asked.complaint}"
    return (
        "controller",
        True,
        f"{answer.out.strip().splitlines()[0]}; as {_user()}, {len(asked.out.split())} job(s)",
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.geteuid()}"


def _partitions() -> Check:
    try:
        answer = commands.run(["sinfo", "-h", "-o", "%P %a %D nodes %T"], _TIMEOUT_S)
    except SchedulerUnavailable as exc:
        return "partitions", False, str(exc)
    found = [line.strip() for line in answer.out.splitlines() if line.strip()]
    return "partitions", bool(found) and answer.code == 0, "; ".join(found) or answer.complaint


def _accounting() -> Check:
    try:
        answer = commands.run(["sacct", "-n", "-X", "-j", "1"], _TIMEOUT_S)
    except SchedulerUnavailable as exc:
        answer = commands.Answer(1, "", str(exc))
    if answer.code == 0:
        return (
            "accounting",
            True,
            "sacct answers: jobs are known after the controller has forgotten them",
        )
    what = "of a job that Slurm has forgotten, only what its keeper wrote is known"
    return "accounting", True, f"none ({answer.complaint}): {what}"
