"""How local jobs are doing. The end of one whose keeper is gone is written by whoever looks."""

from __future__ import annotations

import os
from typing import Any

from transload.keeper import ending, layout
from transload.schedulers.folder import store

# whether a job has ended, by its folder, with what its states looked like then
_ended: dict[str, tuple[tuple[int, int, int], bool]] = {}


def true_state(home: str, app_id: str) -> dict[str, Any] | None:
    """Return the true state of a job, or None if there is no such job.

    A job whose keeper is gone is made FAILED first.
    """
    state = store.read_state(home, app_id)
    if state is None or _is_final(state):
        return state
    folder = layout.app_folder(home, app_id)
    if not layout.is_kept(folder):
        state = _finalise(home, app_id)
    if state is not None and not _has_ended(state) and layout.is_end_asked(folder):
        state["cancel_requested"] = True
    return state


def _is_final(state: dict[str, Any]) -> bool:
    return isinstance(state, store.DamagedState) or _has_ended(state)


def _has_ended(state: dict[str, Any]) -> bool:
    return state.get("state") in layout.TERMINAL


def _finalise(home: str, app_id: str) -> dict[str, Any] | None:
    try:
        ending.finalise(home, app_id)
    except OSError as exc:
        state = store.read_state(home, app_id)
        if state is not None and not _has_ended(state):
            state.update(
                state="FAILED", msg=f"its keeper died; its end cannot be written: {exc.strerror}"
            )
            written = store.changed_at(layout.state_file(layout.app_folder(home, app_id)))
            layout.end_replicas(state, "FAILED", written)
        return state
    return store.read_state(home, app_id)


def has_ended(home: str, app_id: str) -> bool:
    """Tell whether a job has ended (or is gone). Cheap enough for every page of a log."""
    folder = layout.app_folder(home, app_id)
    try:
        stat = os.stat(layout.state_file(folder))
    except (FileNotFoundError, NotADirectoryError):
        return true_state(home, app_id) is None
    except OSError as exc:
        raise store.unreadable(layout.state_file(folder), exc) from exc
    key = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    before = _ended.get(folder)
    if before is not None and before[0] == key and (before[1] or layout.is_kept(folder)):
        return before[1]  # the same file as when it was last looked at
    state = true_state(home, app_id)
    ended = state is None or _has_ended(state)
    if isinstance(state, store.DamagedState):
        ended = not layout.is_kept(folder)
    store.keep(_ended, folder, (key, ended))
    return ended
