"""What is on disk of the jobs, in a folder that login and compute nodes share.

::

    <root>/<app_id>/record.json   what was submitted, never changed, made in one step with the folder
                    submitting    somebody is submitting it: host, boot id, pid, time
                    token         tells the latest submit from earlier ones, whose jobs do nothing
                    job.json      Slurm's job id
                    claim         the id of the Slurm job that runs it
                    job.sh        the batch script
                    job/          the supervisor that runs in the job
                    plan.json     what the supervisor runs (role-<n>: each task of a role)
                    state.json    what the job is doing, written by the supervisor
                    slurm.json    Slurm's last answer about the job, written by whoever got it
                    cancel        somebody asked for the end
                    batch.log     what the supervisor, srun and Slurm itself complain of
                    logs/<role>/<k>/{stdout.log,stderr.log,index}
                    workspace/, results/
    <root>/.gone/<app_id>         kept by delete for ids that the caller chose
    <root>/.checkpoints/<name>/<role>/  of the jobs whose records have that name
    <root>/.packages/             uv, its cache, and files of requirements
    <root>/.pruned                when ``keep_days`` was looked at last
    <root>/.asked-<host>          Slurm's answers to the helpers of a login node

With ``job_dir``, ``logs``, ``workspace`` and ``results`` are links into ``<job_dir>/<app_id>``. A
mark there, the file ``.transload``, says whose folder that is: without it nothing is removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from typing import Any, Final

from transload.errors import ConfigError, SchedulerUnavailable
from transload.keeper import layout
from transload.schedulers.api import damaged_message
from transload.schedulers.chains import number_in_chain
from transload.schedulers.folder.home import in_home, make_private
from transload.schedulers.folder.store import safe_id, size_of
from transload.specs import AppStatus, SpecError
from transload_slurm import checkpoints

ENV_FOLDER: Final = "TRANSLOAD_SLURM_DIR"
"""Folder of the jobs, on a file system that login and compute nodes share."""

SCHEMA: Final = 1
"""The form of records that this version writes."""

BULKY: Final = ("logs", "workspace", "results")
_MARK: Final = ".transload"
_NUMBER: Final = re.compile(r"[0-9]{1,18}\Z")
_MOST: Final = 1 << 29
"""Characters that are read of a file, since a job may leave one of any size."""


def root_folder() -> str:
    """Return the folder of all jobs.

    It is ``TRANSLOAD_SLURM_DIR``, else ``~/.transload/slurm``.
    """
    return os.path.abspath(os.environ.get(ENV_FOLDER) or in_home("~/.transload/slurm", ENV_FOLDER))


def write_file(path: str, text: str) -> None:
    """Replace a file in one step. It is for this user alone."""
    aside = f"{path}.{os.getpid()}.{os.urandom(3).hex()}.tmp"
    try:
        with open(
            os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
            "w",
            encoding="utf-8",
            errors="surrogateescape",
        ) as file:
            file.write(text)
        os.replace(aside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def read_text(path: str) -> str | None:
    """Return a file's content, or None if it is not there, or the job has replaced it."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=layout.open_own) as file:
            return file.read(_MOST)
    except (FileNotFoundError, NotADirectoryError, layout.Replaced):
        return None


def read_json(path: str) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if it is not there or damaged."""
    try:
        found = json.loads(read_text(path) or "null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def last_line(path: str) -> str:
    """Return the last line of a file that says something, shortened."""
    try:
        with open(path, "rb", opener=layout.open_own) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


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
    if again and read_text(f"{folder}/{_MARK}") == mark:
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
        shutil.rmtree(aside, ignore_errors=True)
        if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder) from exc
        raise


def remove_marked(folder: str, mark: str) -> None:
    """Remove a folder, if it is there and bears the mark."""
    parent, _, _ = folder.rpartition("/")
    if read_text(f"{folder}/{_MARK}") == mark:
        _remove(folder, f"{parent}/.trash-{os.urandom(8).hex()}")


def _remove(folder: str, trash: str) -> None:
    """Take a folder away in one step, then remove it."""
    try:
        os.rename(folder, trash)
    except FileNotFoundError:
        return
    shutil.rmtree(trash, ignore_errors=True)


class AppFolders:
    """What is on disk of all apps.

    Args:
        root: its path, which is made when first needed.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._records: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {}

    def ensure(self) -> None:
        """Make the folder.

        Raises:
            ConfigError: if it cannot be made or is not ours.
        """
        try:
            make_private(f"{self.root}/.gone")
            stat = os.stat(self.root)
        except OSError as exc:
            raise ConfigError(
                f"{ENV_FOLDER}: the folder {self.root} cannot be used: {exc.strerror}"
            ) from exc
        if stat.st_uid != os.getuid() or stat.st_mode & 0o022:
            raise ConfigError(
                f"{ENV_FOLDER}: the folder {self.root} must be yours, and not writable by others"
            )

    def folder(self, app_id: str) -> str:
        """Return the folder of a job."""
        return f"{self.root}/{app_id}"

    def record(self, app_id: str) -> dict[str, Any] | None:
        """Return what was submitted, or None if there is no such job, or its record is damaged.

        Raises:
            SchedulerUnavailable: if it cannot be read now, which proves nothing.
        """
        if not safe_id(app_id):
            return None
        path = f"{self.folder(app_id)}/record.json"
        try:
            stat = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            self._records.pop(app_id, None)
            return None
        except OSError as exc:
            raise SchedulerUnavailable(f"cannot read {path}: {exc.strerror}") from exc
        version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        known = self._records.get(app_id)
        if known is None or known[0] != version:
            found = _read_record(path)
            if (
                found is None or found.get("app_id") != app_id or not _is_whole(found)
            ):  # nothing that we have made
                return None
            known = self._records[app_id] = (version, found)
        return known[1]

    def damage(self, app_id: str) -> str:
        """Return what is wrong with the record of a job, or ``""`` if it is whole or there is none.

        A folder without a readable record is a job's if it has another mark of a submit. A user's
        own folder never counts as one.

        Raises:
            SchedulerUnavailable: if it cannot be read now, or a newer version wrote it. Then it is
                not damaged.
        """
        if (
            not safe_id(app_id)
            or self.record(app_id) is not None
            or not _is_submitted(self.folder(app_id))
        ):
            return ""
        path = f"{self.folder(app_id)}/record.json"
        found = _read_record(path) or {}
        schema = found.get("schema", SCHEMA)
        if isinstance(schema, int) and schema > SCHEMA:
            newer = f"written by a newer version of transload (schema {schema}; this one reads {SCHEMA})"
            raise SchedulerUnavailable(f"{path}: {newer}")
        if _is_whole(found):  # a copy of a job's folder, which somebody has made
            return ""
        return damaged_message(f"its record {path}")

    def job_id(self, app_id: str) -> str | None:
        """Return the id of a job in Slurm, once it has one."""
        folder = self.folder(app_id)
        noted = (read_json(f"{folder}/job.json") or {}).get("id", "")
        for found in (read_text(f"{folder}/claim") or "", str(noted)):
            if _NUMBER.match(found):  # the job itself may have written anything there
                return found
        return None

    def is_gone(self, app_id: str) -> bool:
        """Tell whether a job of that id was deleted (caller-given ids only)."""
        return safe_id(app_id) and os.path.exists(f"{self.root}/.gone/{app_id}")

    def is_due(self, seconds: float) -> bool:
        """Tell whether it is that long since this was said last, to whatever process."""
        mark = f"{self.root}/.pruned"
        with contextlib.suppress(FileNotFoundError):
            if time.time() - os.stat(mark).st_mtime < seconds:
                return False
        write_file(mark, "")
        return True

    def ids(self) -> list[str]:
        """Return the ids of all jobs."""
        try:
            return [name for name in os.listdir(self.root) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        except PermissionError as exc:
            raise ConfigError(
                f"{ENV_FOLDER}: the folder {self.root} is another user's: {exc.strerror}"
            ) from exc

    def ids_in_chain(self, chain: str) -> dict[int, str]:
        """Return the ids of a chain's jobs by their numbers, those of deleted jobs too."""
        found = {}
        # in this order: a job that is deleted meanwhile is in the second folder before it leaves
        # the first
        for app_id in (*self.ids(), *self._gone_ids()):
            number = number_in_chain(chain, app_id)
            if number is not None:
                found[number] = app_id
        return dict(sorted(found.items()))

    def _gone_ids(self) -> list[str]:
        try:
            return os.listdir(f"{self.root}/.gone")
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise SchedulerUnavailable(f"cannot read {self.root}/.gone: {exc.strerror}") from exc

    def state(self, app_id: str) -> dict[str, Any] | None:
        """Return what the supervisor has written last, or None if it has not begun."""
        return read_state(self.state_file(app_id))

    def state_file(self, app_id: str) -> str:
        """Return the file in which the supervisor of a job writes what it is doing."""
        return f"{self.folder(app_id)}/state.json"

    def ended_at(self, app_id: str, record: dict[str, Any]) -> float:
        """Return when the end of a job was written, by its supervisor or by us for Slurm."""
        times = []
        for path in (self.state_file(app_id), f"{self.folder(app_id)}/slurm.json"):
            with contextlib.suppress(OSError):
                times.append(os.stat(path).st_mtime)
        return max(times, default=float(record["created"]))

    def size(self, app_id: str, record: dict[str, Any]) -> int:
        """Return how many bytes a job takes on disk, with what lies in ``job_dir``."""
        return sum(map(size_of, {self.folder(app_id), record["files"]}))

    def remove(self, app_id: str, record: dict[str, Any]) -> None:
        """Remove a job's folder. The record of an id that the caller gave stays."""
        if record.get("id_given"):
            with open(f"{self.root}/.gone/{app_id}", "a", encoding="utf-8"):
                pass
        folder = self.folder(app_id)
        if record["files"] != folder:
            remove_marked(record["files"], record["mark"])
        _remove(folder, f"{self.root}/.trash-{os.urandom(8).hex()}")
        if record.get("checkpoint_folders"):
            checkpoints.remove_unused(record, self._records_left())

    def sweep_checkpoints(self) -> None:
        """Remove checkpoints that no job names."""
        checkpoints.sweep(self.root, self._records_left())

    def _records_left(self) -> Iterator[dict[str, Any] | None]:
        """Yield the records of all jobs, with None for one that cannot be read."""
        for app_id in self.ids():
            try:
                record = self.record(app_id)
                if record is not None or self.damage(app_id):
                    yield record
            except SchedulerUnavailable:
                yield None

    def remove_damaged(self, app_id: str) -> None:
        """Remove the folder of a job whose record is damaged. What lies in a ``job_dir`` stays."""
        make_private(f"{self.root}/.gone")
        with open(
            f"{self.root}/.gone/{app_id}", "a", encoding="utf-8"
        ):  # whose id it was is not known any more
            pass
        _remove(self.folder(app_id), f"{self.root}/.trash-{os.urandom(8).hex()}")


def read_state(path: str) -> dict[str, Any] | None:
    """Return what a supervisor has written, or None if it has not begun, or that is damaged."""
    found = read_json(path)
    if found is None:
        return None
    try:
        AppStatus.from_dict(found)
    except SpecError:
        return None
    return found


def _read_record(path: str) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except OSError as exc:
        raise SchedulerUnavailable(f"cannot read {path}: {exc.strerror}") from exc


def _is_submitted(folder: str) -> bool:
    """Tell whether a folder bears a mark of a submit besides the record.

    Such a mark is its token, its submitter, or its program.
    """
    if os.path.isdir(f"{folder}/job/transload_slurm_job"):
        return True
    try:
        token = read_text(f"{folder}/token") or ""
        submitter = read_json(f"{folder}/submitting") or {}
    except OSError as exc:
        raise SchedulerUnavailable(f"cannot read {exc.filename or folder}: {exc.strerror}") from exc
    return (
        re.match(r"[0-9a-f]{16}\Z", token) is not None
        or {"host", "boot", "pid", "started"} <= submitter.keys()
    )


def _is_whole(record: dict[str, Any]) -> bool:
    """Tell whether a record has the form that a submit writes. A damaged one is ignored."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "session": str,
        "digest": str,
        "files": str,
        "created": (int, float),
        "app": dict,
        "cfg": dict,
        "roles": list,
    }
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        return False
    if not checkpoints.are_whole(record) or not isinstance(record.get("asked", {}), dict):
        return False
    for role in record["roles"]:
        if not isinstance(role, dict) or not {"name", "num_replicas"} <= role.keys():
            return False
    return {"requeue", "tracker_base"} <= record.keys()
