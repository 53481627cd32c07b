"""The records and states of jobs on disk, which any process of the user may read.

``home`` is the folder of a scheduler, with ``apps/`` and ``gone/`` in it. It need not exist. What
lies where says `transload.keeper.layout`.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Dict, Final

from transload.errors import SchedulerUnavailable
from transload.keeper import layout
from transload.runtime.forks import fork_lock
from transload.schedulers.api import damaged_message
from transload.schedulers.chains import number_in_chain
from transload.schedulers.folder.home import make_private
from transload.specs import AppDef, AppStatus, SpecError
from transload.specs.checks import LATEST

__all__ = [
    "DamagedState",
    "app_of",
    "changed_at",
    "damaged_record",
    "is_gone",
    "read_record",
    "read_state",
    "remove",
    "safe_id",
    "size_of",
]


_SAFE_ID = r"[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]{0,199}\Z"
_CACHED: Final = 1024
_STALE_COPY_S: Final = 86400.0  # a large workspace takes its time to be copied

# what was read once, by path, with inode and time of the file
_records: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
_apps: dict[str, tuple[dict[str, Any], AppDef | None]] = {}
_lock = fork_lock()

Lock = Callable[[], AbstractContextManager[object]]


class DamagedState(Dict[str, Any]):
    """The state of a job whose state on disk cannot be read."""

    def __init__(self, path: str) -> None:
        super().__init__(state="UNKNOWN", msg=damaged_message(f"its state {path}"))


def safe_id(app_id: str) -> bool:
    """Tell whether a job id can name a folder.

    It may have no ``/``, no control characters, no leading dot, and at most 200 bytes.
    """
    try:
        size = len(os.fsencode(app_id))
    except UnicodeEncodeError:  # a lone surrogate, which no name of a file has
        return False
    return size <= 200 and re.match(_SAFE_ID, app_id) is not None


def read_record(home: str, app_id: str) -> dict[str, Any] | None:
    """Return the record of a submit, ``{}`` if it is damaged, or None if there is no such job.

    Raises:
        SchedulerUnavailable: if a newer version of transload wrote it.
    """
    if not safe_id(app_id):
        return None
    path = f"{layout.app_folder(home, app_id)}/record.json"
    try:
        stat = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {} if os.path.isdir(layout.app_folder(home, app_id)) else None
    except OSError as exc:
        raise unreadable(path, exc) from exc
    key = (stat.st_ino, stat.st_mtime_ns)
    cached = _records.get(path)
    if cached is not None and cached[0] == key:
        return cached[1]
    record = _read(path) or {}
    # that of another job is in a copy of that job's folder
    if not _has_schema(record, path) or not _is_record(record) or record.get("app_id") != app_id:
        record = {}
    keep(_records, path, (key, record))
    return record


def read_state(home: str, app_id: str) -> dict[str, Any] | None:
    """Return the state that a job's folder says, or None if there is no such job.

    Raises:
        SchedulerUnavailable: if it cannot be read now, or a newer version of transload wrote it.
    """
    if not safe_id(app_id):
        return None
    folder = layout.app_folder(home, app_id)
    path = layout.state_file(folder)
    state = _read(path)
    if state is not None:
        if not _has_schema(state, path) or not _is_state(state):
            return DamagedState(path)
        if state.get("state") not in layout.TERMINAL:
            _apply_noted_end(folder, state)
        return state
    if not os.path.isdir(folder):
        return None
    return {"state": "UNKNOWN", "msg": damaged_message(f"its state {path}")}


def _is_record(record: dict[str, Any]) -> bool:
    """Tell whether what is in a record has the form that it was written in."""
    texts = (
        record.get(name)
        for name in (
            "session",
            "digest",
            "tracker_base",
            "parent_run_id",
            "logs",
            "token",
            "checkpoint_base",
        )
    )
    if not all(isinstance(record.get(name) or {}, dict) for name in ("app", "cfg", "asked")):
        return False
    app = record.get("app") or {}
    roles = app.get("roles", [])
    return (
        all(isinstance(record.get(name), str) for name in ("session", "digest", "logs"))
        and all(map(_is_text, (*texts, app.get("name"))))
        and isinstance(roles, list)
        and all(map(_is_asked_role, roles))
        and isinstance(record.get("workspaces") or [], list)
        and _is_moment(record.get("created"))
        and (record.get("checkpoints") is None or _is_folder_name(record["checkpoints"]))
    )


def _is_asked_role(role: object) -> bool:
    """Tell whether a role of an app definition has a name and a number of replicas."""
    if not isinstance(role, dict) or not _is_folder_name(role.get("name")):
        return False
    return isinstance(role.get("num_replicas", 1), int)


def _is_text(value: object) -> bool:
    """Tell whether a value is a text that UTF-8 can hold, or None."""
    if not isinstance(value, str):
        return value is None
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_folder_name(value: object) -> bool:
    """Tell whether a value is safe as the name of a folder.

    A job may have written another value, to have some other folder read or removed.
    """
    return isinstance(value, str) and safe_id(value)


def _is_moment(value: object) -> bool:
    """Tell whether a value is a time, in seconds, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value is None
    return 0 <= value < LATEST


def _is_state(state: dict[str, Any]) -> bool:
    """Tell whether what is in a state has the form that it was written in."""
    roles = state.get("roles", [])
    texts = (
        isinstance(state.get("state"), str)
        and _is_text(state.get("msg"))
        and _is_text(state.get("ui_url"))
    )
    return texts and isinstance(roles, list) and all(map(_is_role, roles))


def _is_role(role: object) -> bool:
    if not isinstance(role, dict) or not isinstance(role.get("replicas"), list):
        return False
    return isinstance(role.get("role"), str) and all(
        isinstance(each, dict) for each in role["replicas"]
    )


def _has_schema(data: dict[str, Any], path: str) -> bool:
    """Tell whether what was read has a schema of ours, or none. Anything but a number is damage.

    Raises:
        SchedulerUnavailable: if a newer version of transload wrote it.
    """
    schema = data.get("schema", layout.SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int):
        return False
    if schema > layout.SCHEMA:
        raise SchedulerUnavailable(
            f"{path}: written by a newer version of transload (schema {schema}; this one reads "
            f"{layout.SCHEMA})"
        )
    return True


def damaged_record(home: str, app_id: str) -> str:
    """Return what is said of a job whose record is damaged."""
    return damaged_message(f"its record {layout.app_folder(home, app_id)}/record.json")


def status_of(home: str, app_id: str, state: dict[str, Any]) -> AppStatus:
    """Return the status in a state. That of a damaged state is UNKNOWN, with that reason."""
    try:
        return AppStatus.from_dict(state)
    except SpecError:
        return AppStatus.from_dict(DamagedState(layout.state_file(layout.app_folder(home, app_id))))


def app_of(app_id: str, record: dict[str, Any]) -> AppDef | None:
    """Return the app definition of a record, the same object each time, never to be changed."""
    cached = _apps.get(app_id)
    if cached is None or cached[0] is not record:
        app = None
        if record.get("app"):
            # the status can be read even if a newer version of transload wrote the definition
            with contextlib.suppress(SpecError):
                app = AppDef.from_dict(record["app"])
        cached = (record, app)
        keep(_apps, app_id, cached)
    return cached[1]


def keep(cache: dict[str, Any], name: str, value: object) -> None:
    """Keep what was read for a next time."""
    with _lock:
        if len(cache) >= _CACHED:
            cache.clear()
        cache[name] = value


def app_ids(home: str) -> Iterator[str]:
    """Yield the ids of all jobs."""
    try:
        names = os.listdir(f"{home}/apps")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        raise unreadable(f"{home}/apps", exc) from exc
    yield from (name for name in names if not name.startswith("."))


def ids_in_chain(home: str, chain: str) -> dict[int, str]:
    """Return the ids of a chain's jobs by their numbers, those of deleted jobs too."""
    found = {}
    # in this order: a job that is deleted meanwhile is in the second folder before it leaves the
    # first
    for app_id in (*app_ids(home), *_gone_ids(home)):
        number = number_in_chain(chain, app_id)
        if number is not None:
            found[number] = app_id
    return dict(sorted(found.items()))


def _gone_ids(home: str) -> Iterator[str]:
    try:
        yield from os.listdir(f"{home}/gone")
    except FileNotFoundError:
        return
    except OSError as exc:
        raise unreadable(f"{home}/gone", exc) from exc


def is_gone(home: str, app_id: str) -> bool:
    """Tell whether the record of a deleted job with a caller-given id is here."""
    return safe_id(app_id) and os.path.exists(f"{home}/gone/{app_id}")


def remove(
    home: str, app_id: str, lock: Lock = contextlib.nullcontext, *, forget: bool = False
) -> None:
    """Remove a job that has ended. An id that the caller gave stays known.

    Args:
        home: folder of the scheduler.
        app_id: the job.
        lock: holds what a submit holds while it makes folders of checkpoints.
        forget: the id may be used again, though the caller gave it.

    Raises:
        SchedulerUnavailable: if it cannot be removed.
    """
    folder = layout.app_folder(home, app_id)
    record = read_record(home, app_id)
    if record is None:
        return
    try:
        # a damaged record does not say whether the caller gave the id, so it may have
        if not forget and record.get("id_given", True):
            make_private(f"{home}/gone")
            layout.touch(f"{home}/gone/{app_id}")
        aside = f"{home}/apps/.gone.{os.urandom(8).hex()}"
        os.rename(folder, aside)
    except FileNotFoundError:
        return  # another process removed it
    except OSError as exc:
        raise SchedulerUnavailable(
            f"job {app_id} cannot be removed: {exc.filename or folder}: {exc.strerror}"
        ) from exc
    layout.remove_tree(aside)
    for copy in record.get("workspaces") or ():
        if str(copy).startswith(f"{home}/workspaces/"):
            layout.remove_tree(str(copy))
    _remove_checkpoints(home, record, lock)
    with _lock:
        _records.pop(f"{folder}/record.json", None)


def checkpoint_folders(home: str, record: dict[str, Any]) -> dict[str, str]:
    """Return the folder of each role of a job that has checkpoints."""
    name = record.get("checkpoints")
    roles = (record.get("app") or {}).get("roles", ())
    if name is None:
        return {}
    base = record.get("checkpoint_base") or f"{home}/checkpoints"
    return {
        role["name"]: f"{base}/{name}/{role['name']}" for role in roles if role.get("checkpoints")
    }


def _remove_checkpoints(home: str, record: dict[str, Any], lock: Lock) -> None:
    """Remove the checkpoints of a job that is gone, unless another one has their name."""
    folders = checkpoint_folders(home, record)
    # after an error they stay until the next job of that name is removed
    with contextlib.suppress(OSError, SchedulerUnavailable), lock():
        if not folders or record["checkpoints"] in _checkpoints_in_use(home):
            return
        for folder in folders.values():
            _remove_aside(folder)
            with contextlib.suppress(OSError):  # those of other roles are there
                os.rmdir(os.path.dirname(folder))


def _checkpoints_in_use(home: str) -> set[str]:
    """Return the names of the checkpoints of all jobs.

    Raises:
        SchedulerUnavailable: if a record cannot be read, which may have any name.
    """
    records = [read_record(home, app_id) for app_id in app_ids(home)]
    if {} in records:
        raise SchedulerUnavailable("a record is damaged")
    return {str(record["checkpoints"]) for record in records if record and "checkpoints" in record}


def _remove_aside(folder: str) -> None:
    """Remove a folder, which is taken away in one step."""
    aside = f"{folder}.gone.{os.urandom(8).hex()}"
    os.rename(folder, aside)
    layout.remove_tree(aside)


def sweep(home: str, older_than: float, lock: Lock = contextlib.nullcontext) -> None:
    """Remove remains of submits and removals that were broken off.

    A copy of a workspace that no job uses stays for a day.

    Args:
        home: folder of the scheduler.
        older_than: least age of the remains, in seconds.
        lock: as for `remove`.
    """
    for entry in _entries(f"{home}/apps"):
        if entry.name.startswith(".") and _age(entry) > older_than:
            layout.remove_tree(entry.path)
    stale = max(older_than, _STALE_COPY_S)
    _sweep_checkpoints(home, stale, lock)
    copies = [entry for entry in _entries(f"{home}/workspaces") if _age(entry) > stale]
    if not copies:
        return
    try:
        records = [read_record(home, app_id) for app_id in app_ids(home)]
    except SchedulerUnavailable:
        return
    if {} in records:
        return  # a record that cannot be read may use any of them
    used = {
        os.path.basename(str(copy))
        for record in records
        for copy in (record or {}).get("workspaces") or ()
    }
    for entry in copies:
        if entry.name not in used:
            layout.remove_tree(entry.path)


def _sweep_checkpoints(home: str, stale: float, lock: Lock) -> None:
    """Remove the checkpoints that no job names any more."""
    old = [entry for entry in _entries(f"{home}/checkpoints") if _age(entry) > stale]
    if not old:
        return
    with contextlib.suppress(OSError, SchedulerUnavailable), lock():
        used = _checkpoints_in_use(home)
        for entry in old:
            if entry.name not in used:
                layout.remove_tree(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []


def _age(entry: os.DirEntry[str]) -> float:
    """Return the seconds since something in a folder was made or removed, or 0 if it is gone."""
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0


def _read(path: str) -> dict[str, Any] | None:
    try:
        return layout.read_json(path)
    except OSError as exc:
        raise unreadable(path, exc) from exc


def _apply_noted_end(folder: str, state: dict[str, Any]) -> None:
    """Set the end of a job from its link on a full disk.

    Exit codes come with the last state, if that can be written later.
    """
    end = layout.noted_end(folder)
    if end is None:
        return
    before = f" (before that: {state['msg']})" if state.get("msg") else ""
    state.update(state=end, msg=f"no room on the disk for the details of its end{before}")
    state["cancel_requested"] = bool(state.get("cancel_requested")) or layout.is_end_asked(folder)
    layout.end_replicas(state, end, changed_at(f"{folder}/end"))


def changed_at(path: str) -> float | None:
    """Return when a file was changed, seconds since the epoch, or None if it is not there."""
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def unreadable(path: str, exc: OSError) -> SchedulerUnavailable:
    """Return the error of a file that cannot be read now, which proves nothing."""
    return SchedulerUnavailable(f"cannot read {path}: {exc.strerror}")


def size_of(path: str) -> int:
    """Return how many bytes a folder takes on disk (holes not counted)."""
    total = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += size_of(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
    return total
