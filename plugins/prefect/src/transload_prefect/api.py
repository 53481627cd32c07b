"""Share one client of Prefect's API for each process and server.

It serves what is done beside the flow's own work.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from typing import Any, Final, TypedDict, Unpack
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import filters
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.sorting import ArtifactSort
from prefect.settings import PREFECT_API_URL

PAGE: Final = 200

_lock = threading.Lock()
_clients: dict[tuple[int, str | None], SyncPrefectClient] = {}


def client() -> SyncPrefectClient:
    """Return the client, which is closed when the process ends."""
    key = (os.getpid(), PREFECT_API_URL.value())
    with _lock:
        found = _clients.get(key)
        if found is None:
            found = _clients[key] = get_client(sync_client=True)
            found.__enter__()
        return found


@atexit.register
def _close() -> None:
    with _lock:
        for (pid, _), found in _clients.items():
            if pid == os.getpid():
                found.__exit__(None, None, None)
        _clients.clear()


class ArtifactChange(TypedDict, total=False):
    """What may change in an artifact.

    Args:
        data: what it shows: a text, or percent of progress.
        description: Markdown above it.
    """

    data: str | float
    description: str


class ArtifactFields(ArtifactChange, total=False):
    """What an artifact is made of.

    Args:
        key: its name. Artifacts of one key are versions of each other.
        type: ``table``, ``markdown`` or ``progress``.
        metadata_: notes that are not shown.
    """

    key: str
    type: str
    metadata_: dict[str, str]


def create_artifact(flow_run_id: Any, task_run_id: Any, **artifact: Unpack[ArtifactFields]) -> UUID:
    """Create an artifact of a flow run and a task run, where there are such. Return its id."""
    runs = {"flow_run_id": flow_run_id, "task_run_id": task_run_id}
    # where there is none, nothing: None would be sent as a text
    there = {name: each for name, each in runs.items() if each is not None}
    made: UUID = client().create_artifact(ArtifactCreate(**artifact, **there)).id
    return made


def update_artifact(artifact_id: UUID, **change: Unpack[ArtifactChange]) -> None:
    """Change an artifact."""
    client().update_artifact(artifact_id, ArtifactUpdate(**change))


def update_note(artifact_id: Any, notes: dict[str, str]) -> bool:
    """Replace the notes of an artifact, without an event for each. Return False if it is gone."""
    try:
        client().request(
            "PATCH", "/artifacts/{id}", json={"metadata_": notes}, path_params={"id": artifact_id}
        )
    except httpx.HTTPStatusError as exc:
        if exc.response.status_code == 404:
            return False
        raise
    return True


def notes_of(flow_run_id: Any, mark: str) -> dict[str, tuple[Any, dict[str, str]]]:
    """Return the notes of a flow run's artifacts that have ``mark`` among them.

    The key is the mark's value, and the value is the artifact's id with its notes.
    """
    found: dict[str, tuple[Any, dict[str, str]]] = {}
    chosen = filters.ArtifactFilter(flow_run_id=filters.ArtifactFilterFlowRunId(any_=[flow_run_id]))
    for offset in itertools.count(0, PAGE):
        order = ArtifactSort.CREATED_DESC
        page = client().read_artifacts(
            artifact_filter=chosen, limit=PAGE, offset=offset, sort=order
        )
        for each in page:
            notes = each.metadata_ or {}
            if mark in notes:
                found.setdefault(notes[mark], (each.id, dict(notes)))
        if len(page) < PAGE:
            break
    return found
