"""Which app has which GPU: one table for all local apps of the user, first come, first served.

Each app in the table is there only as long as its keeper lives, so that a killed keeper frees what it had.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

from . import layout

TYPE_CHECKING = False  # typing itself would cost the spawner its speed
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@contextmanager
def _table(home: str, own: str) -> Iterator[tuple[dict[str, list[str]], list[str]]]:
    """Give the table to be changed: app → its GPUs, and the apps that wait, in order; none whose keeper is gone."""
    with layout.locked(f"{home}/gpus.lock"):
        table: Any = layout.read_json(f"{home}/gpus.json") or {}
        apps = {*(table.get("held") or ()), *(table.get("waiting") or ())}
        there = {app for app in apps if app == own or layout.keeper_lives(layout.app_folder(home, app))}
        held = {app: list(ids) for app, ids in (table.get("held") or {}).items() if app in there}
        waiting = [app for app in table.get("waiting") or () if app in there]
        yield held, waiting
        layout.write_file(f"{home}/gpus.json", json.dumps({"schema": 1, "held": held, "waiting": waiting}).encode())


def acquire(home: str, app_id: str, wanted: int, machine: list[str]) -> list[str] | None:
    """Give an app ``wanted`` of the machine's GPUs; None: too few are free, the app stands in the queue now."""
    with _table(home, app_id) as (held, waiting):
        taken = {gpu for app, ids in held.items() if app != app_id for gpu in ids}
        free = [gpu for gpu in machine if gpu not in taken]
        if waiting[:1] not in ([], [app_id]) or len(free) < wanted:
            if app_id not in waiting:
                waiting.append(app_id)
            return None
        held[app_id] = free[:wanted]
        if app_id in waiting:
            waiting.remove(app_id)
    _wake(home, waiting)  # what is still free may be enough for the next one
    return held[app_id]


def release(home: str, app_id: str) -> None:
    """Take an app out of the table and the queue, and wake the one that waits first."""
    if not os.path.exists(f"{home}/gpus.json"):
        return
    with _table(home, app_id) as (held, waiting):
        held.pop(app_id, None)
        if app_id in waiting:
            waiting.remove(app_id)
    _wake(home, waiting)


def _wake(home: str, waiting: list[str]) -> None:
    for app_id in waiting[:1]:
        layout.poke(layout.app_folder(home, app_id))
