"""Make folders for checkpoints, which all attempts of a job share, and all nodes see."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final

from transload.errors import ConfigError, SubmitError
from transload.schedulers.folder.home import make_private
from transload_slurm.file_systems import file_system

if TYPE_CHECKING:
    from transload_slurm.convert import SlurmRequest

_MEMORY: Final = ("tmpfs", "ramfs")
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


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
