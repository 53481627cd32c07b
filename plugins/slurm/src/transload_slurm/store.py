"""What is on disk of the jobs, in a folder that login and compute nodes share.

Records, states, logs and what else a job folder has lie where `transload.keeper.layout` says. Slurm
needs besides::

    apps/<app_id>/submitting    somebody is submitting it: host, boot id, pid, time
                  token         tells the latest submit from earlier ones, whose jobs do nothing
                  job.json      Slurm's job id
                  claim         the id of the Slurm job that runs it
                  job.sh        the batch script
                  job/          the keeper that runs in the job
                  plan.json     what the keeper runs (role-<n>: each task of a role)
                  slurm.json    Slurm's last answer about the job, written by whoever got it
                  batch.log     what the keeper, srun and Slurm itself complain of
    .packages/                  uv, its cache, and files of requirements
    .pruned                     when ``keep_days`` was looked at last
    .asked-<host>               Slurm's answers to the processes of a machine

With ``job_dir``, ``logs``, ``workspace`` and ``results`` are links into ``<job_dir>/<app_id>``. A
mark there, the file ``.transload``, says whose folder that is: without it nothing is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transload.errors import ConfigError
from transload.keeper import layout
from transload.schedulers.folder import store
from transload.schedulers.folder.home import in_home, make_private
from transload.specs import AppStatus, SpecError

ENV_FOLDER: Final = "TRANSLOAD_SLURM_DIR"
"""Folder of the jobs, on a file system that login and compute nodes share."""

BULKY: Final = ("logs", "workspace", "results")
_MARK: Final = ".transload"
_NUMBER: Final = re.compile(r"[0-9]{1,18}\Z")
_LONGEST_WORD: Final = 4096


def root_folder() -> str:
    """Return the folder of all jobs.

    It is ``TRANSLOAD_SLURM_DIR``, else ``~/.transload/slurm``.
    """
    return os.path.abspath(os.environ.get(ENV_FOLDER) or in_home("~/.transload/slurm", ENV_FOLDER))


def ensure(home: str) -> None:
    """Make the folder of all jobs.

    Raises:
        ConfigError: if it cannot be made or is not ours.
    """
    try:
        for name in layout.FOLDERS:
            make_private(f"{home}/{name}")
        stat = os.stat(home)
    except OSError as exc:
        raise ConfigError(
            f"{ENV_FOLDER}: the folder {home} cannot be used: {exc.strerror}"
        ) from exc
    if stat.st_uid != os.getuid() or stat.st_mode & 0o022:
        raise ConfigError(
            f"{ENV_FOLDER}: the folder {home} must be yours, and not writable by others"
        )


def write_file(path: str, text: str) -> None:
    """Replace a file in one step. It is for this user alone."""
    layout.write_file(path, text.encode("utf-8", "surrogateescape"))


def read_word(path: str) -> str | None:
    """Return what a short file says, or None if it is not there, or the job has replaced it."""
    try:
        fd = layout.open_own(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError, layout.Replaced):
        return None
    try:
        return os.read(fd, _LONGEST_WORD).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def last_line(path: str) -> str:
    """Return the last line of a file that says something, shortened."""
    lines = layout.end_of_own(path, 4096, 0).decode("utf-8", "replace").splitlines()
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def slurm_job(home: str, app_id: str) -> str | None:
    """Return the id of a job in Slurm, once it has one."""
    folder = layout.app_folder(home, app_id)
    noted = (layout.read_json(f"{folder}/job.json") or {}).get("id", "")
    for found in (read_word(f"{folder}/claim") or "", str(noted)):
        if _NUMBER.match(found):  # the job itself may have written anything there
            return found
    return None


def state_of(home: str, app_id: str) -> dict[str, Any] | None:
    """Return what the keeper has written last, or None if it has not begun."""
    found = layout.read_json(layout.state_file(layout.app_folder(home, app_id)))
    if found is None:
        return None
    try:
        AppStatus.from_dict(found)
    except SpecError:
        return None
    return found


def roles_of(record: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return name, number of replicas, and least number of them, of each role of a job."""
    roles = (record.get("app") or {}).get("roles", ())
    return [
        {
            "name": role["name"],
            "num_replicas": role.get("num_replicas", 1),
            "min_replicas": role.get("min_replicas"),
        }
        for role in roles
    ]


def of_slurm(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a record that Slurm alone has."""
    found = record.get("slurm")
    return found if isinstance(found, dict) else {}


def remove(home: str, app_id: str, *, forget: bool = False) -> None:
    """Remove all that is left of a job that has ended.

    Args:
        home: the folder of all jobs.
        app_id: the job.
        forget: its id may be used again, though the caller gave it.
    """
    record = store.read_record(home, app_id) or {}
    files = of_slurm(record).get("files")
    if isinstance(files, str) and files != layout.app_folder(home, app_id):
        remove_marked(files, str(of_slurm(record).get("mark")))
    store.remove(home, app_id, forget=forget)


def is_due(home: str, seconds: float) -> bool:
    """Tell whether it is that long since this was said last, to whatever process."""
    mark = f"{home}/.pruned"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - os.stat(mark).st_mtime < seconds:
            return False
    write_file(mark, "")
    return True


def make_marked(folder: str, mark: str, *, again: bool) -> None:
    """Make a folder with our mark in it.

    The folder appears with the mark, so that whoever sees something in it sees the mark.

    Args:
        folder: its path. Its parents are made too.
        mark: what tells it from everybody else's.
        again: whether an earlier try was interrupted. Then the folder may be there with the mark,
            or empty.

    Raises:
        FileExistsError: if something is there already, which is never touched.
    """
    parent, _, name = folder.rpartition("/")
    if again and read_word(f"{folder}/{_MARK}") == mark:
        return
    make_private(parent)
    with contextlib.suppress(FileExistsError) if again else contextlib.nullcontext():
        os.mkdir(folder, 0o700)
    aside = f"{parent}/.{name[:100]}-{os.urandom(8).hex()}"
    os.mkdir(aside, 0o700)
    try:
        write_file(f"{aside}/{_MARK}", mark)
        os.rename(aside, folder)  # onto a folder that is not empty: refused by the file system
    except OSError as exc:
        layout.remove_tree(aside)
        if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder) from exc
        raise


def remove_marked(folder: str, mark: str) -> None:
    """Remove a folder, if it is there and bears the mark. It is taken away in one step."""
    if read_word(f"{folder}/{_MARK}") != mark:
        return
    trash = f"{folder.rpartition('/')[0]}/.trash-{os.urandom(8).hex()}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, trash)
    layout.remove_tree(trash)
