"""Make a job's folder, all or nothing.

This also finds out who was first, and where checkpoints are.
"""

from __future__ import annotations

import errno
import fcntl
import os

from . import layout

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from typing import IO, Any

__all__ = ["Refused", "locked_checkpoints"]

PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a submit that may pass."""
_CHECKPOINTS_PATIENCE_S = 10.0


def unfinished(home: str, token: str) -> str:
    """Return the folder in which a job is made, before it has its name."""
    return f"{home}/apps/.{token}"


class Refused(Exception):
    """The job is not started. ``answer`` is the answer to its client."""

    def __init__(self, answer: dict[str, object]) -> None:
        super().__init__(answer)
        self.answer = answer


def create_app(
    home: str, app_id: str, request: dict[str, Any], first_state: dict[str, object]
) -> tuple[int, int]:
    """Make the job's folder.

    Returns:
        The descriptors that hold its lock, and are the folder's own.

    Raises:
        Refused: if there is such a job, there was one, or the folder cannot be written.
    """
    target = layout.app_folder(home, app_id)
    if os.path.exists(f"{home}/gone/{app_id}"):
        raise Refused({"error": "gone"})
    aside = unfinished(home, request["record"]["token"])
    try:
        opened = _fill(aside, request, first_state)
        os.rename(aside, target)
    except OSError as exc:
        layout.remove_tree(aside)
        if exc.errno in (errno.ENOTEMPTY, errno.EEXIST) and exc.filename2 == target:
            raise Refused(_compare(target, request["record"])) from None
        message = f"cannot write {exc.filename or aside}: {exc.strerror}"
        raise Refused(
            {"error": "submit", "transient": exc.errno in PASSING, "message": message}
        ) from None
    if os.path.exists(f"{home}/gone/{app_id}"):  # deleted between the look and the rename
        os.rename(target, aside)
        layout.remove_tree(aside)
        raise Refused({"error": "gone"})
    return opened


def checkpoint_folder(home: str, name: str, role: str) -> str:
    """Return the folder of the checkpoints of a role that are kept under a name."""
    return f"{home}/checkpoints/{name}/{role}"


def locked_checkpoints(home: str) -> IO[bytes]:
    """Hold the lock under which folders of checkpoints are made and removed.

    Raises:
        TimeoutError: if somebody holds it for too long.
    """
    return layout.locked(f"{home}/checkpoints.lock", _CHECKPOINTS_PATIENCE_S)


def create_app_with_checkpoints(
    home: str, app_id: str, request: dict[str, Any], first_state: dict[str, object]
) -> tuple[int, int]:
    """Make the folders of a job and of its checkpoints. Arguments and errors are `create_app`'s.

    The checkpoints cannot be removed between the two.
    """
    name = request["record"].get("checkpoints")
    if name is None:
        return create_app(home, app_id, request, first_state)
    made: list[str] = []
    try:
        with locked_checkpoints(home):
            for role in request["roles"]:
                if role["checkpoints"]:
                    made += _make_checkpoints(checkpoint_folder(home, name, role["name"]))
            return create_app(home, app_id, request, first_state)
    except Refused:
        _remove_empty(made)
        raise
    except OSError as exc:
        _remove_empty(made)
        folder = exc.filename or f"{home}/checkpoints"
        message = f"cannot keep checkpoints in {folder}: {exc.strerror}"
        transient = isinstance(exc, TimeoutError) or exc.errno in PASSING
        raise Refused({"error": "submit", "transient": transient, "message": message}) from None


def _make_checkpoints(folder: str) -> list[str]:
    """Make a folder for checkpoints, and those above it.

    Returns:
        The folders that were made, outermost first.
    """
    missing: list[str] = []
    path = folder
    while not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    for each in missing:
        os.mkdir(each, 0o700)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission to write there", folder)
    return missing


def _remove_empty(folders: list[str]) -> None:
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError:
            return


def _fill(aside: str, request: dict[str, Any], first_state: dict[str, object]) -> tuple[int, int]:
    record = request["record"]
    os.mkdir(aside, 0o700)
    place = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    lock = os.open(f"{aside}/record.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    layout.write_all(lock, layout.dumps(record))
    os.mkdir(f"{aside}/results", 0o700)
    own_logs = not request["log_dir"]
    logs = f"{aside}/logs" if own_logs else record["logs"]
    for role in request["roles"]:
        for k in range(len(role["replicas"])):
            os.makedirs(f"{logs}/{role['name']}/{k}", 0o700, exist_ok=True)
    layout.write_new(layout.state_file(aside), layout.dumps(first_state) + b"\n")
    return lock, place


def _compare(target: str, record: dict[str, object]) -> dict[str, object]:
    """Return the answer to a submit whose job id is taken by this very job, or by another one."""
    there = layout.read_json(f"{target}/record.json")
    if there is None or there.get("digest") != record["digest"]:
        return {"error": "exists"}
    # an equal token is our own, sent again
    return {"started": there.get("token") == record["token"]}
