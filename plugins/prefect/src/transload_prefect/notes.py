"""Keep a flow run's notes about its jobs: the handle of each, and which generation of it that is.

Each job has an artifact that tells people where its logs are. These notes are the metadata of that
artifact. So they survive the process, the machine and the container of the flow. Labels of the flow
run would not do. The server reads and rewrites them as a whole, so two writers lose notes, and
SQLite refuses with "database is locked".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import httpx

from transload_prefect import api
from transload_prefect.artifacts import artifact_key, log_note
from transload_prefect.background import background

if TYPE_CHECKING:
    from transload_prefect.runs import RunContext

UNIT: Final = "transload.unit"
HANDLE: Final = "transload.handle"
LOST: Final = "transload.lost"
GENERATION: Final = "transload.generation"


class Notes:
    """The notes about one job of a flow run.

    ``name`` and ``task_run_id`` (of the task), and ``link`` (gives the address of a job's page) are
    shown to people. ``unit`` says which job of the flow run it is.
    """

    def __init__(
        self,
        flow_run_id: Any,
        unit: str,
        artifact_id: Any = None,
        values: dict[str, str] | None = None,
    ) -> None:
        self.unit = unit
        self.name = unit
        self.task_run_id: Any = None
        self.link: Callable[[str], str | None] = lambda handle: None
        self.flow_run_id = flow_run_id
        self._artifact_id = artifact_id
        self._values = values or {UNIT: unit}
        self._lock = threading.Lock()

    @property
    def handle(self) -> str | None:
        """The handle of the newest job, as far as it is known. It is a hint where the job may be."""
        return self._values.get(HANDLE)

    @property
    def lost(self) -> bool:
        """Whether it was reported already that the newest job is gone."""
        return LOST in self._values and self._values[LOST] == self.handle

    def was_lost(self, handle: str) -> None:
        """Keep that a try has reported that a job is gone. The next one submits another."""
        with suppress(httpx.HTTPError):
            self.save(HANDLE, handle)
            self.save(LOST, handle)

    def submitted(self, handle: str) -> None:
        """Show a handle, while the job starts."""
        if handle != self.handle:
            background().post(partial(self.save, HANDLE, handle))

    @property
    def generation(self) -> str:
        """The generation of the job, as in `transload.pipelines.Identity`."""
        return self._values.get(GENERATION, "0")

    def end_generation(self, generation: str) -> None:
        """Have another generation follow this one, if it is the present one.

        It does so here at once, and on the server.
        """
        if generation != self.generation:
            return
        following = str(int(generation) + 1)
        try:
            self.save(GENERATION, following)
        except httpx.HTTPError:
            background().post(partial(self.save, GENERATION, following))

    def save(self, what: str, text: str) -> None:
        """Change a note. When this returns, the server has it."""
        with self._lock:
            self._values = {**self._values, what: text}
            if self._artifact_id is not None and api.update_note(self._artifact_id, self._values):
                return
            handle = self.handle or ""
            key = artifact_key(self.name, "logs")
            text = log_note(handle, self.link(handle) if handle else None)
            self._artifact_id = api.create_artifact(
                self.flow_run_id,
                self.task_run_id,
                key=key,
                type="markdown",
                data=text,
                metadata_=self._values,
            )


_lock = threading.Lock()


def notes_of(context: RunContext) -> Notes | None:
    """Return the notes about a job of a flow run.

    They are read from the server the first time that this process asks.

    Returns:
        None outside of a flow run, since nothing finds the job again there.
    """
    if context.flow is None:
        return None
    with _lock:
        known = _notes_in(context.flow_run_id)
        notes = known.setdefault(context.unit, Notes(context.flow_run_id, context.unit))
    notes.name = context.name
    notes.task_run_id = context.task_run_id
    return notes


@lru_cache(256)
def _notes_in(flow_run_id: Any) -> dict[str, Notes]:
    return {
        key: Notes(flow_run_id, key, *each) for key, each in api.notes_of(flow_run_id, UNIT).items()
    }
