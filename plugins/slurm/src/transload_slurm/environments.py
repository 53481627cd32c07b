"""The environments of a cluster's jobs, on its login node, below the folder of the jobs.

Each is made once for its content, and removed when no job uses it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Optional

from transload.errors import SchedulerUnavailable
from transload.schedulers.api import AppDescription
from transload.schedulers.environments.program import (
    find,
    key_of,
    listed,
    python_of,
    remove,
)
from transload_slurm.store import AppFolders

_IDLE_S: Final = 600.0
"""Seconds that an environment stays after its last use, since a submit may be about to use it."""
_SHELL_S: Final = 60.0
_DAY_S: Final = 86400.0
WHEELS: Final = ".transload-wheels-"
"""Begins the names of folders of wheels, of a job that makes an environment."""
_RECORD: Final = "environment.json"
_MODULE: Final = r"\s*(module|ml)\s"
_FIND_PYTHON: Final = """\
before=$(command -v python3)
{{
{lines}
}} >/dev/null 2>&1 </dev/null
after=$(command -v python3)
[ "$before" = "$after" ] || printf '\\n%s\\n%s\\n' "$LD_LIBRARY_PATH" "$after"
"""

Describe = Callable[[Collection[str]], Mapping[str, Optional[AppDescription]]]
"""Returns what is known of jobs, by their ids."""


def environments_folder(root: str) -> str:
    """Return the folder of the environments of all jobs below a folder of jobs."""
    return f"{root}/.environments"


@dataclass(frozen=True)
class ChosenPython:
    """The Python that an environment is made of.

    Args:
        path: that interpreter and no other, or ``""`` for the first ``python3`` on PATH that fits.
        place: which one that is, as far as it is known. Another one makes another environment.
        variables: what it needs to run.
    """

    path: str
    place: str
    variables: dict[str, str] = field(default_factory=dict)


def choose_python(named: str, prologue: str) -> ChosenPython:
    """Return the Python that the user has named, else that of a module which the prologue loads.

    Of a prologue only the lines that begin with ``module`` or ``ml`` are run here.

    Args:
        named: the run option ``python``, where ``python3`` names none.
        prologue: the run option ``prologue``.
    """
    place = os.path.realpath(shutil.which("python3") or sys.executable)
    if named not in ("", "python3"):
        return ChosenPython(os.path.expanduser(named), place)
    lines = [line for line in prologue.splitlines() if re.match(_MODULE, line)]
    if not lines:
        return ChosenPython("", place)
    script = _FIND_PYTHON.format(lines="\n".join(lines))
    try:
        done = subprocess.run(
            ["bash", "-lc", script],  # noqa: S607 - the one on PATH
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SHELL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ChosenPython("", place)
    said = done.stdout.decode("utf-8", "replace").splitlines()
    if len(said) < 2 or not said[-1].startswith("/"):
        return ChosenPython("", place)
    variables = {}
    if said[-2]:
        variables["LD_LIBRARY_PATH"] = said[-2]
    return ChosenPython(said[-1], place, variables)


def python_there(root: str, recipe: dict[str, Any], chosen: ChosenPython) -> dict[str, Any]:
    """Return what wheels that are fetched elsewhere must fit.

    It is ``{}`` if the environment is here already.

    Args:
        root: the folder of all environments.
        recipe: what is to be installed.
        chosen: the Python that it is made of.

    Raises:
        Failure: if there is no Python that fits.
    """
    if find(root, key_of(recipe, chosen.path or chosen.place)) is not None:
        return {}
    libc, version = platform.libc_ver()
    glibc = ""
    if libc == "glibc":
        glibc = version
    order = {"recipe": recipe, "python": chosen.path, "variables": chosen.variables}
    return {"version": python_of(order), "machine": platform.machine(), "glibc": glibc}


class Environments:
    """What was made below a folder of jobs, and which of it jobs use.

    Args:
        store: the jobs.
        describe: tells which of them have ended.
    """

    def __init__(self, store: AppFolders, describe: Describe) -> None:
        self._store = store
        self._describe = describe

    @property
    def root(self) -> str:
        """The folder of all environments."""
        return environments_folder(self._store.root)

    def listed(self) -> list[dict[str, Any]]:
        """Return the records of those that were made, each with ``in_use``.

        Raises:
            SchedulerUnavailable: if Slurm cannot be asked.
        """
        found = listed(self.root)
        if not found:
            return []
        used = self._used()
        for record in found:
            record["in_use"] = used is None or record["path"] in used
        return found

    def delete(self, older_than: float | None, *, dry_run: bool) -> list[dict[str, Any]]:
        """Delete environments that no job uses or used a moment ago. Return their records.

        Args:
            older_than: seconds since the last use. Less than ten minutes count as ten minutes.
            dry_run: delete nothing.

        Raises:
            SchedulerUnavailable: if Slurm cannot be asked, or one cannot be removed.
        """
        idle = max(_IDLE_S, older_than or 0.0)
        deleted = []
        if not dry_run:
            self._sweep()
        for record in self.listed():
            if record["in_use"] or not _is_idle(record["path"], idle):
                continue
            if dry_run or self._remove(record, idle):
                deleted.append(record)
        return deleted

    def _sweep(self) -> None:
        """Remove wheels that a killed maker has left."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as listing:
            for entry in listing:
                if not entry.name.startswith(WHEELS):
                    continue
                if time.time() - entry.stat().st_mtime > _DAY_S:
                    shutil.rmtree(entry.path, ignore_errors=True)

    def _remove(self, record: Mapping[str, Any], idle: float) -> bool:
        try:
            # whoever was given it since the jobs were read has used it just now
            return remove(self.root, record["key"], lambda folder: not _is_idle(folder, idle))
        except OSError as exc:
            raise SchedulerUnavailable(
                f"environment {record['path']} cannot be removed: {exc.strerror}"
            ) from exc

    def _used(self) -> set[str] | None:
        """Return the folders that unfinished jobs use, or None if they may use any."""
        asked: dict[str, Collection[str]] = {}
        for app_id in self._store.ids():
            try:
                record = self._store.record(app_id)
                if record is None and self._store.damage(app_id):
                    asked[app_id] = ()
            except SchedulerUnavailable:
                return None
            if record is not None and record.get("environments"):
                asked[app_id] = record["environments"]
        used: set[str] = set()
        for app_id, found in self._describe(list(asked)).items():
            if found is None or found.status.is_terminal():
                continue
            if not asked[app_id]:
                return None
            used.update(asked[app_id])
        return used


def _is_idle(folder: str, seconds: float) -> bool:
    """Tell whether an environment was last used so many seconds ago, or earlier."""
    try:
        return time.time() - os.stat(f"{folder}/{_RECORD}").st_mtime >= seconds
    except FileNotFoundError:
        return True
