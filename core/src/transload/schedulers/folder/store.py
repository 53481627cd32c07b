"""The records and states of jobs on disk, which any process of the user may read.

``local`` is the folder of the local scheduler, with ``apps/`` and ``gone/`` in it. It need not
exist.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import Any, Dict, Final

from transload.errors import SchedulerUnavailable
from transload.keeper import creation, ending, layout
from transload.runtime.forks import fork_lock
from transload.schedulers.api import AppDescription, ListAppResponse, damaged_message
from transload.schedulers.chains import number_in_chain
from transload.schedulers.folder.home import make_private
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    Progress,
    SpecError,
)
from transload.specs.checks import LATEST

__all__ = ["safe_id", "size_of"]


_SAFE_ID = r"[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]{0,199}\Z"
_CACHED: Final = 1024
_STALE_COPY_S: Final = 86400.0  # a large workspace takes its time to be copied

# what was read once, by path, with inode and time of the file
_records: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
_ended: dict[str, tuple[tuple[int, int, int], bool]] = {}
_apps: dict[str, tuple[dict[str, Any], AppDef | None]] = {}
_lock = fork_lock()


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


def read_record(local: str, app_id: str) -> dict[str, Any] | None:
    """Return the record of a submit, ``{}`` if it is damaged, or None if there is no such job.

    Raises:
        SchedulerUnavailable: if a newer version of transload wrote it.
    """
    if not safe_id(app_id):
        return None
    path = f"{layout.app_folder(local, app_id)}/record.json"
    try:
        stat = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {} if os.path.isdir(layout.app_folder(local, app_id)) else None
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    key = (stat.st_ino, stat.st_mtime_ns)
    cached = _records.get(path)
    if cached is not None and cached[0] == key:
        return cached[1]
    record = _read(path) or {}
    if not _has_schema(record, path) or not _is_record(record):
        record = {}
    _keep(_records, path, (key, record))
    return record


def true_state(local: str, app_id: str) -> dict[str, Any] | None:
    """Return the true state of a job, or None if there is no such job.

    A job whose keeper is gone is made FAILED first.
    """
    if not safe_id(app_id):
        return None
    state = _read_state(local, app_id)
    if state is None or isinstance(state, DamagedState) or state.get("state") in layout.TERMINAL:
        return state
    folder = layout.app_folder(local, app_id)
    if not layout.is_kept(folder):
        state = _finalise(local, app_id)
    if (
        state is not None
        and state.get("state") not in layout.TERMINAL
        and layout.is_end_asked(folder)
    ):
        state["cancel_requested"] = True
    return state


def _finalise(local: str, app_id: str) -> dict[str, Any] | None:
    try:
        ending.finalise(local, app_id)
    except OSError as exc:
        state = _read_state(local, app_id)
        if state is not None and state.get("state") not in layout.TERMINAL:
            state.update(
                state="FAILED",
                msg=f"its keeper died; its end cannot be written: {exc.strerror}",
            )
            layout.end_replicas(
                state, "FAILED", _mtime(layout.state_file(layout.app_folder(local, app_id)))
            )
        return state
    return _read_state(local, app_id)


def _read_state(local: str, app_id: str) -> dict[str, Any] | None:
    folder = layout.app_folder(local, app_id)
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
        )
    )
    app, cfg, asked, copies = (record.get(name) for name in ("app", "cfg", "asked", "workspaces"))
    name = app.get("name") if isinstance(app, dict) else None
    return (
        all(map(_is_text, (*texts, name)))
        and isinstance(app, dict | None)
        and isinstance(cfg, dict | None)
        and isinstance(asked, dict | None)
        and isinstance(copies, list | None)
        and _is_moment(record.get("created"))
        and _is_checkpoints_name(record.get("checkpoints"))
    )


def _is_text(value: object) -> bool:
    """Tell whether a value is a text that UTF-8 can hold, or None."""
    if not isinstance(value, str):
        return value is None
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_checkpoints_name(value: object) -> bool:
    """Tell whether a value is None or safe as the name of a folder of checkpoints.

    A job may have written another value, to have some other folder removed.
    """
    return value is None or (isinstance(value, str) and safe_id(value))


def _is_moment(value: object) -> bool:
    """Tell whether a value is a time, in seconds, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
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


def describe(local: str, app_id: str) -> AppDescription | None:
    """Return what is known of a job, or None if there is no such job."""
    state = true_state(local, app_id)
    record = read_record(local, app_id) if state is not None else None
    if state is None or record is None:
        return None
    status = _status_of(local, app_id, state)
    if not record:
        status.msg = "; ".join(filter(None, (status.msg, damaged_record(local, app_id))))
    return AppDescription(
        app_id,
        status,
        _app_of(app_id, record),
        session=record.get("session"),
        cfg=dict(record.get("cfg") or {}),
        digest=record.get("digest"),
        tracker_base=record.get("tracker_base"),
        parent_run_id=record.get("parent_run_id"),
        created=record.get("created"),
        log_url=record.get("logs"),
        checkpoints=record.get("checkpoints"),
        asked=dict(record.get("asked") or {}),
    )


def damaged_record(local: str, app_id: str) -> str:
    """Return what is said of a job whose record is damaged."""
    return damaged_message(f"its record {layout.app_folder(local, app_id)}/record.json")


def _status_of(local: str, app_id: str, state: dict[str, Any]) -> AppStatus:
    """Return the status in a state. That of a damaged state is UNKNOWN, with that reason."""
    try:
        return AppStatus.from_dict(state)
    except SpecError:
        return AppStatus.from_dict(
            DamagedState(layout.state_file(layout.app_folder(local, app_id)))
        )


def _app_of(app_id: str, record: dict[str, Any]) -> AppDef | None:
    """Return the app definition of a record, the same object each time, never to be changed."""
    cached = _apps.get(app_id)
    if cached is None or cached[0] is not record:
        app = None
        if record.get("app"):
            # the status can be read even if a newer version of transload wrote the definition
            with contextlib.suppress(SpecError):
                app = AppDef.from_dict(record["app"])
        cached = (record, app)
        _keep(_apps, app_id, cached)
    return cached[1]


def _keep(cache: dict[str, Any], name: str, value: object) -> None:
    with _lock:
        if len(cache) >= _CACHED:
            cache.clear()
        cache[name] = value


def has_ended(local: str, app_id: str) -> bool:
    """Tell whether a job has ended (or is gone). Cheap enough for every page of a log."""
    folder = layout.app_folder(local, app_id)
    try:
        stat = os.stat(layout.state_file(folder))
    except (FileNotFoundError, NotADirectoryError):
        return true_state(local, app_id) is None
    except OSError as exc:
        raise _unreadable(layout.state_file(folder), exc) from exc
    key = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    before = _ended.get(folder)
    if before is not None and before[0] == key and (before[1] or layout.is_kept(folder)):
        return before[1]  # the same file as when it was last looked at
    state = true_state(local, app_id)
    ended = state is None or state.get("state") in layout.TERMINAL
    if isinstance(state, DamagedState):
        ended = not layout.is_kept(folder)
    _keep(_ended, folder, (key, ended))
    return ended


def ends(local: str) -> dict[str, float]:
    """Return when each job that has ended did so, seconds since the epoch, the first one first."""
    found = {}
    for app_id in app_ids(local):
        # jobs of a newer version are left to it, and some may be removed meanwhile
        with contextlib.suppress(SchedulerUnavailable, FileNotFoundError):
            if has_ended(local, app_id):
                path = layout.state_file(layout.app_folder(local, app_id))
                found[app_id] = os.stat(path).st_mtime
    return dict(sorted(found.items(), key=lambda item: item[1]))


def app_ids(local: str) -> Iterator[str]:
    """Yield the ids of all jobs."""
    try:
        names = os.listdir(f"{local}/apps")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        raise _unreadable(f"{local}/apps", exc) from exc
    yield from (name for name in names if not name.startswith("."))


def ids_in_chain(local: str, chain: str) -> dict[int, str]:
    """Return the ids of a chain's jobs by their numbers, those of deleted jobs too."""
    found = {}
    # in this order: a job that is deleted meanwhile is in the second folder before it leaves the
    # first
    for app_id in (*app_ids(local), *_gone_ids(local)):
        number = number_in_chain(chain, app_id)
        if number is not None:
            found[number] = app_id
    return dict(sorted(found.items()))


def _gone_ids(local: str) -> Iterator[str]:
    try:
        yield from os.listdir(f"{local}/gone")
    except FileNotFoundError:
        return
    except OSError as exc:
        raise _unreadable(f"{local}/gone", exc) from exc


def list_apps(local: str) -> list[ListAppResponse]:
    """Return all jobs, newest first."""
    rows = []
    for app_id in app_ids(local):
        try:
            state = true_state(local, app_id)
            record = read_record(local, app_id)
        except SchedulerUnavailable:
            rows.append(ListAppResponse(app_id, AppState.UNKNOWN))
            continue
        if state is not None and record is not None:
            shown = AppState.__members__.get(str(state.get("state")), AppState.UNKNOWN)
            name = str((record.get("app") or {}).get("name", ""))
            created = record.get("created")
            progress = Progress.from_value(state.get("progress"))
            session = str(record.get("session") or "")
            rows.append(ListAppResponse(app_id, shown, "", name, created, progress, session))
    return sorted(rows, key=lambda row: row.created or 0.0, reverse=True)


def is_gone(local: str, app_id: str) -> bool:
    """Tell whether the record of a deleted job with a caller-given id is here."""
    return safe_id(app_id) and os.path.exists(f"{local}/gone/{app_id}")


def remove(local: str, app_id: str) -> None:
    """Remove a job that has ended, after waiting for its keeper to end.

    An id that the caller gave stays known.
    """
    folder = layout.app_folder(local, app_id)
    record = read_record(local, app_id)
    if record is None:
        return
    try:
        with contextlib.ExitStack() as held:
            with contextlib.suppress(layout.Replaced):  # what is no file cannot be locked
                held.enter_context(layout.locked(f"{folder}/record.json"))
            # a damaged record does not say whether the caller gave the id, so it may have
            if record.get("id_given", True):
                make_private(f"{local}/gone")
                layout.touch(f"{local}/gone/{app_id}")
            aside = f"{local}/apps/.gone.{os.getpid()}.{time.monotonic_ns()}"
            os.rename(folder, aside)
    except FileNotFoundError:
        return  # another process removed it
    except OSError as exc:
        raise SchedulerUnavailable(
            f"job {app_id} cannot be removed: {exc.filename or folder}: {exc.strerror}"
        ) from exc
    layout.remove_tree(aside)
    for copy in record.get("workspaces") or ():
        if str(copy).startswith(f"{local}/workspaces/"):
            layout.remove_tree(str(copy))
    if record.get("checkpoints"):
        _remove_checkpoints(local, record["checkpoints"])
    with _lock:
        _records.pop(f"{folder}/record.json", None)


def _remove_checkpoints(local: str, name: str) -> None:
    """Remove the checkpoints that are kept under a name, unless the record of a job has it."""
    aside = f"{local}/checkpoints/.gone.{os.getpid()}.{time.monotonic_ns()}"
    # after an error they stay until the next job of that name is removed
    with contextlib.suppress(OSError, SchedulerUnavailable), creation.locked_checkpoints(local):
        records = [read_record(local, app_id) for app_id in app_ids(local)]
        # a record that cannot be read may have that name
        used = any(record == {} or (record or {}).get("checkpoints") == name for record in records)
        if not used:
            os.rename(f"{local}/checkpoints/{name}", aside)
    layout.remove_tree(aside)


def sweep(local: str, older_than: float) -> None:
    """Remove remains of submits and removals that were broken off.

    A copy of a workspace that no job uses stays for a day.

    Args:
        local: folder of the local scheduler.
        older_than: least age of the remains, in seconds.
    """
    for entry in _entries(f"{local}/apps"):
        if (
            entry.name.startswith(".")
            and _age(entry) > older_than
            and not layout.is_kept(entry.path)
        ):
            layout.remove_tree(entry.path)
    stale = max(older_than, _STALE_COPY_S)
    for entry in _entries(f"{local}/checkpoints"):
        if _age(entry) > stale:
            _remove_checkpoints(local, entry.name)
    copies = [entry for entry in _entries(f"{local}/workspaces") if _age(entry) > stale]
    if not copies:
        return
    try:
        records = [read_record(local, app_id) for app_id in app_ids(local)]
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
        raise _unreadable(path, exc) from exc


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
    layout.end_replicas(state, end, _mtime(f"{folder}/end"))


def _mtime(path: str) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def _unreadable(path: str, exc: OSError) -> SchedulerUnavailable:
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
