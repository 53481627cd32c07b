"""Which app has which GPU: one table for all local apps of the user, first come, first served.

Each app in the table is there only as long as its keeper lives, so that a killed keeper frees what it had.
"""

from __future__ import annotations

import json
import os

from . import layout

_Table = dict[str, dict[str, list[str]]]


def _load(home: str, own: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return (app → its GPUs, the apps that wait, in order), without those whose keeper is gone."""
    table = layout.read_json(f"{home}/gpus.json") or {}
    held = {
        app: list(ids)
        for app, ids in dict(table.get("held") or {}).items()  # type: ignore[call-overload]
        if app == own or layout.keeper_lives(layout.app_folder(home, app))
    }
    waiting = [
        app
        for app in table.get("waiting") or ()  # type: ignore[attr-defined]
        if app == own or layout.keeper_lives(layout.app_folder(home, app))
    ]
    return held, waiting


def _store(home: str, held: dict[str, list[str]], waiting: list[str]) -> None:
    layout.write_file(f"{home}/gpus.json", json.dumps({"schema": 1, "held": held, "waiting": waiting}).encode())


def acquire(home: str, app_id: str, wanted: int, machine: list[str]) -> list[str] | None:
    """Give an app ``wanted`` of the machine's GPUs; None: too few are free, the app stands in the queue now."""
    with layout.locked(f"{home}/gpus.lock"):
        held, waiting = _load(home, app_id)
        taken = {gpu for app, ids in held.items() if app != app_id for gpu in ids}
        free = [gpu for gpu in machine if gpu not in taken]
        first = not waiting or waiting[0] == app_id
        if first and len(free) >= wanted:
            held[app_id] = free[:wanted]
            waiting = [app for app in waiting if app != app_id]
            _store(home, held, waiting)
            after = waiting[:1]
        else:
            if app_id not in waiting:
                waiting.append(app_id)
            _store(home, held, waiting)
            after = []
    _wake(home, after)  # what is still free may be enough for the next one
    return held.get(app_id) if first and len(free) >= wanted else None


def release(home: str, app_id: str) -> None:
    """Take an app out of the table and the queue, and wake the one that waits first."""
    if not os.path.exists(f"{home}/gpus.json"):
        return
    with layout.locked(f"{home}/gpus.lock"):
        held, waiting = _load(home, app_id)
        held.pop(app_id, None)
        waiting = [app for app in waiting if app != app_id]
        _store(home, held, waiting)
    _wake(home, waiting[:1])


def _wake(home: str, app_ids: list[str]) -> None:
    for app_id in app_ids:
        layout.poke(layout.app_folder(home, app_id))
