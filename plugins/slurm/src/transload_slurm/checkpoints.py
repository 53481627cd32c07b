"""Make, measure and remove folders for checkpoints, which all attempts of a job share.

They are kept under a name: ``<base>/<name>/<role>``. Each job's record has the name, and the last
record that has it takes the folder with it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, SubmitError
from transload.runtime.liveness import newest_change
from transload.schedulers.api import CheckpointFolder
from transload.schedulers.folder.home import make_private
from transload.schedulers.folder.store import size_of
from transload_slurm.file_systems import file_system

if TYPE_CHECKING:
    from transload_slurm.convert import SlurmRequest

_OWN: Final = ".checkpoints"
_MEMORY: Final = ("tmpfs", "ramfs")
_STALE_S: Final = 3600.0
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def base_of(root: str, base: str | None) -> str:
    """Return the folder of all checkpoints.

    Args:
        root: the folder of the jobs.
        base: the run option ``checkpoint_base``, or None if it is not set.
    """
    if base:
        return base
    return f"{root}/{_OWN}"


def folder_of(root: str, base: str | None, name: str, role: str) -> str:
    """Return the folder of the checkpoints of a role that are kept under a name."""
    return f"{base_of(root, base)}/{name}/{role}"


def make(request: SlurmRequest) -> None:
    """Make the folders of the roles that have one.

    Raises:
        ConfigError: if one cannot be written to, or lies in this machine's memory, which no node
            sees.
        SubmitError: if there is no room.
    """
    for role in request.roles:
        if role.checkpoints:
            _make(role.checkpoints)


def _make(folder: str) -> None:
    advice = "name a folder that login and compute nodes share (-c checkpoint_base=FOLDER)"
    try:
        make_private(folder)
        kind = file_system(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
    except OSError as exc:
        what = f"checkpoints: {exc.filename or folder} cannot be written: {exc.strerror}"
        if exc.errno in _FULL:
            raise SubmitError(what, transient=True) from exc
        raise ConfigError(f"{what}: {advice}") from exc
    if kind in _MEMORY:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
            os.rmdir(os.path.dirname(folder))
        raise ConfigError(
            f"checkpoints: {folder} is on {kind}, this machine's memory, which no node sees: "
            f"{advice}"
        )


def are_whole(record: Mapping[str, Any]) -> bool:
    """Tell whether what a record says of checkpoints and notices has the form of a submit's.

    A folder is named for the job's checkpoints and the role, so that no other one is removed.
    """
    name = record.get("checkpoints", "")
    folders = record.get("checkpoint_folders", {})
    if not isinstance(name, str) or not isinstance(folders, dict):
        return False
    if not isinstance(record.get("notice", 0.0), (int, float)):
        return False
    for role, path in folders.items():
        if not isinstance(path, str) or not path.endswith(f"/{name}/{role}"):
            return False
    return True


def found(record: Mapping[str, Any]) -> Sequence[CheckpointFolder]:
    """Return the folders of a job, with what is in them."""
    folders = []
    for role, path in (record.get("checkpoint_folders") or {}).items():
        _, changed = newest_change(path)
        folders.append(CheckpointFolder(role, path, size_of(path), changed or None))
    return folders


def remove_unused(record: Mapping[str, Any], others: Iterable[Mapping[str, Any] | None]) -> None:
    """Remove the checkpoints of a job that is gone, unless another job has their name.

    Args:
        record: that of the job.
        others: the records of all jobs that are left, with None for one that cannot be read, which
            may have that name.
    """
    mine = record.get("checkpoint_folders") or {}
    kept: set[str] = set()
    for other in others:
        if other is None:
            return
        kept.update((other.get("checkpoint_folders") or {}).values())
    for path in mine.values():
        if path in kept:
            continue
        aside = f"{path}.gone-{os.urandom(6).hex()}"
        with contextlib.suppress(OSError):
            os.rename(path, aside)
            shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(OSError):  # other roles, or other jobs, are still there
            os.rmdir(os.path.dirname(path))


def sweep(root: str, records: Iterable[Mapping[str, Any] | None]) -> None:
    """Remove checkpoints that no job names, in the folder of the jobs.

    A removal that broke off leaves such checkpoints.

    Args:
        root: the folder of the jobs.
        records: those of all jobs, with None for one that cannot be read, which may name any.
    """
    base = f"{root}/{_OWN}"
    used: set[str] = set()
    for record in records:
        if record is None:
            return
        folders = (record.get("checkpoint_folders") or {}).values()
        used.update(os.path.dirname(path) for path in folders)
    try:
        names = os.listdir(base)
    except OSError:
        return
    for name in names:
        path = f"{base}/{name}"
        with contextlib.suppress(OSError):
            fresh = time.time() - os.stat(path).st_mtime < _STALE_S
            if path not in used and not fresh:
                shutil.rmtree(path, ignore_errors=True)
