"""Making the folder of an app: complete and under its name in one step, or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os

from . import layout

TYPE_CHECKING = False  # typing itself would cost the spawner its speed
if TYPE_CHECKING:
    from typing import Any

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Refused(Exception):
    """The app is not started; ``answer`` is what its client is told."""

    def __init__(self, answer: dict[str, object]) -> None:
        super().__init__(answer)
        self.answer = answer


def create(home: str, app_id: str, request: dict[str, Any], first_state: dict[str, object]) -> int:
    """Make the app's folder; return the descriptor that holds its lock.

    Raises:
        Refused: if there is such an app, there was one, or the folder cannot be written.
    """
    target = layout.app_folder(home, app_id)
    if os.path.exists(f"{home}/gone/{app_id}"):
        raise Refused({"error": "gone"})
    aside = f"{home}/apps/.{os.getpid()}.{request['record']['token']}"
    try:
        lock = _fill(aside, request, first_state)
        os.rename(aside, target)
    except OSError as exc:
        layout.remove_tree(aside)
        if exc.errno in (errno.ENOTEMPTY, errno.EEXIST) and exc.filename2 == target:
            raise Refused(_compare(target, request["record"])) from None
        message = f"cannot write {exc.filename or aside}: {exc.strerror}"
        raise Refused({"error": "submit", "transient": exc.errno in _PASSING, "message": message}) from None
    if os.path.exists(f"{home}/gone/{app_id}"):  # deleted between the look and the rename
        os.rename(target, aside)
        layout.remove_tree(aside)
        raise Refused({"error": "gone"})
    return lock


def _fill(aside: str, request: dict[str, Any], first_state: dict[str, object]) -> int:
    record = request["record"]
    os.mkdir(aside, 0o700)
    lock = os.open(f"{aside}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.mkfifo(f"{aside}/ctl", 0o600)
    os.mkdir(f"{aside}/results", 0o700)
    own_logs = not request["log_dir"]
    logs = f"{aside}/logs" if own_logs else record["logs"]
    for role in request["roles"]:
        for k in range(len(role["replicas"])):
            os.makedirs(f"{logs}/{role['name']}/{k}", 0o700, exist_ok=True)
    layout.write_new(f"{aside}/record.json", json.dumps(record).encode())
    layout.write_new(f"{aside}/state.json", json.dumps(first_state).encode())
    return lock


def _compare(target: str, record: dict[str, object]) -> dict[str, object]:
    """Say whether the app that is there already is this one."""
    there = layout.read_json(f"{target}/record.json")
    if there is None or there.get("digest") != record["digest"]:
        return {"error": "exists"}
    return {"started": there.get("token") == record["token"]}  # our own, sent again after a broken connection


def remove_unfinished(home: str, pid: int) -> None:
    """Remove the folder that a keeper died over before it had its name."""
    try:
        names = os.listdir(f"{home}/apps")
    except OSError:
        return
    for name in names:
        if name.startswith(f".{pid}."):
            layout.remove_tree(f"{home}/apps/{name}")
