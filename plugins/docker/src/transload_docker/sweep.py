"""Remove the containers that a submit or a delete has left whose process was killed."""

from __future__ import annotations

import os

from transload.keeper import layout
from transload_docker.engine import Box, Engine, in_parallel


def sweep(engine: Engine, home: str, owner: str) -> None:
    """Remove containers of this owner that belong to no job.

    A job's folder is made before its containers, so one without it has been taken back.

    Raises:
        SchedulerUnavailable: if the engine cannot be asked.
    """
    left = [box for box in engine.boxes(owner=owner) if not _has_job(box, home)]
    in_parallel(lambda box: engine.remove_container(box.id), left)


def _has_job(box: Box, home: str) -> bool:
    """Tell whether the job of a container is here. One whose record cannot be read may be."""
    folder = layout.app_folder(home, box.app_id)
    if box.status in ("exited", "dead"):  # of a job that was started, as a submit ends none
        return os.path.lexists(folder)
    token = (layout.read_json(f"{folder}/record.json") or {}).get("token")
    if token is None:
        return os.path.lexists(folder)
    return bool(token == box.token)
