"""How much room ended jobs take, as far as an engine and the file system tell."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from transload_docker import names
from transload_docker.engine import Engine, EngineError
from transload_docker.home import Home


def sizes_of_apps(engine: Engine, home: Home, app_ids: Collection[str]) -> dict[str, int]:
    """Return the bytes that each job takes.

    The layers of its containers count, its results, and logs that may be looked at.
    """
    sizes = {app_id: folder_size(home.results_folder(app_id)) for app_id in app_ids}
    rows = engine.query(
        lambda api: api.containers(all=True, size=True, filters={"label": [names.LABEL_APP]})
    )
    for row in rows:
        app_id = row["Labels"][names.LABEL_APP]
        if app_id in sizes:
            sizes[app_id] += int(row.get("SizeRw") or 0) + _log_size(engine, row["Id"])
    return sizes


def _log_size(engine: Engine, container_id: str) -> int:
    """Return the size of a container's log in bytes, or 0 if its file cannot be read from here."""
    if engine.reach != "host":
        return 0
    try:
        details: dict[str, Any] = engine.query(lambda api: api.inspect_container(container_id))
    except EngineError:
        return 0
    path = str(details.get("LogPath") or "")
    size = 0
    if path:
        for file in Path(path).parent.glob(f"{Path(path).name}*"):  # a logging driver may rotate
            with contextlib.suppress(OSError):
                size += file.stat().st_size
    return size


def folder_size(folder: str) -> int:
    """Return the bytes of all that is in a folder. What cannot be seen is not counted."""
    size = 0
    for root, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(root, name)).st_size
    return size
