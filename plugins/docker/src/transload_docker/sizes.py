"""How much room a job takes on its engine, as far as that tells."""

from __future__ import annotations

import contextlib
from pathlib import Path

from transload_docker import names
from transload_docker.engine import Engine


def size_on_engine(engine: Engine, app_id: str) -> int:
    """Return the bytes of the layers of a job's containers, and of logs that may be looked at."""
    filters = {"label": [f"{names.LABEL_APP}={app_id}"]}
    rows = engine.query(lambda api: api.containers(all=True, size=True, filters=filters))
    return sum(int(row.get("SizeRw") or 0) + _log_size(engine, row["Id"]) for row in rows)


def _log_size(engine: Engine, container_id: str) -> int:
    """Return the size of a container's log in bytes, or 0 if its file cannot be read from here."""
    if engine.reach != "host":
        return 0
    path = str((engine.inspect(container_id) or {}).get("LogPath") or "")
    size = 0
    if path:
        for file in Path(path).parent.glob(f"{Path(path).name}*"):  # a logging driver may rotate
            with contextlib.suppress(OSError):
                size += file.stat().st_size
    return size
