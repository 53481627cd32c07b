"""Keep a flow run's notes about its jobs, which find them again and hold positions in their logs.

Each job has an artifact that tells people where its logs are. These notes are the metadata of that
artifact. So they survive the process, the machine and the container of the flow. Labels of the flow
run would not do. The server reads and rewrites them as a whole, so two writers lose notes, and
SQLite refuses with "database is locked".
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import httpx
from prefect.settings import PREFECT_LOGGING_TO_API_BATCH_INTERVAL

from transload_prefect import api
from transload_prefect.artifacts import artifact_key, log_note
from transload_prefect.background import background

if TYPE_CHECKING:
    from transload_prefect.context import RunContext

MARGIN: Final = 1.0
"""Seconds that a batch of log lines is given to arrive, once Prefect has begun to send it."""

UNIT: Final = "transload.unit"
APP: Final = "transload.app"
GENERATION: Final = "transload.generation"
CURSOR: Final = "transload.log"


class Notes:
    """The notes about one job of a flow run, as a `transload.pipelines.AttachStore`.

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
        self.cursor = Cursor(self)
        self.flow_run_id = flow_run_id
        self._artifact_id = artifact_id
        self._values = values or {UNIT: unit}
        self._lock = threading.Lock()

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""
        return self.read(APP)

    def put(self, record: dict[str, Any]) -> None:
        """Keep a record. A handle is sent while the job starts, a loss before this returns.

        Ids follow from the flow run. So even a process that was killed before a handle arrived
        finds its job again. For the same reason the intent alone is not sent. Nor is what the job
        itself keeps, since Prefect cuts a text off after 500 characters.
        """
        kept = {name: value for name, value in record.items() if name not in ("asked", "cfg")}
        if record.get("lost"):
            self.save(APP, json.dumps(kept))
        elif record.get("handle") is not None:
            background().post(partial(self.save, APP, json.dumps(kept)))

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

    def read(self, what: str) -> dict[str, Any] | None:
        """Return the record that a note holds, or None."""
        if what not in self._values:
            return None
        return dict(json.loads(self._values[what]))

    def has_line_since(self, moment: float) -> bool:
        """Tell whether the server has a line of the job's log that came then or later."""
        with suppress(httpx.HTTPError):
            return api.has_line_since(self.flow_run_id, self.task_run_id, moment)
        return False

    def save(self, what: str, text: str) -> None:
        """Change a note. When this returns, the server has it."""
        with self._lock:
            self._values = {**self._values, what: text}
            if self._artifact_id is not None and api.update_note(self._artifact_id, self._values):
                return
            handle = (self.get() or {}).get("handle") or ""
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


class Cursor:
    """A `transload.pipelines.AttachStore` for the position in the logs of one job.

    Lines go to Prefect's run logger, which sends them in order, every few seconds. It does not
    report when they have arrived. So a record is kept once the server shows the last of its lines,
    or a later one. A process that is killed repeats lines, and loses none.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._handed: float | None = None
        self._latest: tuple[str, float | None] | None = None
        self._waiting = False
        self._lock = threading.Lock()

    def handing(self) -> None:
        """Take note that the next line is given to Prefect's sender now."""
        self._handed = time.time()

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""
        return (
            self._notes.read(CURSOR) if self._latest is None else dict(json.loads(self._latest[0]))
        )

    def put(self, record: dict[str, Any]) -> None:
        """Keep a record, once its lines have arrived."""
        with self._lock:
            self._latest = json.dumps(record), self._handed
            if not self._waiting:
                self._wait_for(*self._latest)

    def _wait_for(self, text: str, handed: float | None) -> None:
        self._waiting = True
        hold = PREFECT_LOGGING_TO_API_BATCH_INTERVAL.value() + MARGIN
        background().post(partial(self._keep, text, handed), after=hold)

    def _keep(self, text: str, handed: float | None) -> None:
        # the process ends, and Prefect's sender, which ends after this, gets rid of all it has
        arrived = handed is None or background().ending or self._notes.has_line_since(handed)
        with self._lock:
            self._waiting = False
            if not arrived:
                self._wait_for(text, handed)
                return
            if self._latest is not None and self._latest[0] != text:
                self._wait_for(*self._latest)
        self._notes.save(CURSOR, text)


_lock = threading.Lock()


def notes_of(context: RunContext) -> Notes | None:
    """Return the notes about a job of a flow run.

    They are read from the server the first time that this process asks.

    Returns:
        None outside of a flow run, since nothing finds the job again there.
    """
    flow_run_id, unit = context.flow_run_id, context.unit
    if flow_run_id is None or unit is None:
        return None
    notes = noted(flow_run_id, unit)
    notes.name = context.name
    notes.task_run_id = context.task_run_id
    return notes


def noted(flow_run_id: Any, unit: str) -> Notes:
    """Return the notes about a job of a flow run."""
    with _lock:
        return _notes_in(flow_run_id).setdefault(unit, Notes(flow_run_id, unit))


@lru_cache(256)
def _notes_in(flow_run_id: Any) -> dict[str, Notes]:
    return {
        key: Notes(flow_run_id, key, *each) for key, each in api.notes_of(flow_run_id, UNIT).items()
    }
