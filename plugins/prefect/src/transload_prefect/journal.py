"""What a flow run keeps about its apps: how to find them again, and how far their logs came.

Each app has an artifact that tells people where its logs are; these notes are the metadata of that artifact. So they
survive the process, the machine and the container that ran the flow. (Labels of the flow run would do as well, but the
server reads and rewrites them as a whole: two writers lose notes, and SQLite refuses with "database is locked".)
"""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx
from prefect.settings import PREFECT_LOGGING_TO_API_MAX_LOG_SIZE

from transload_prefect import api
from transload_prefect.artifacts import artifact_key, log_note
from transload_prefect.background import background

LOG_INTERVAL: Final = 0.5
"""Seconds for which log lines are collected before they go to Prefect together with how far they came."""

BATCH: Final = 500
"""Log lines sent at once."""

LAST_PAUSES: Final = (0.25, 0.5, 1.0, 2.0)
"""Seconds between attempts to send what is left when the process ends."""

REFUSED: Final = (400, 413, 422)
"""HTTP statuses that say that a line is wrong, and no second attempt helps."""

UNIT: Final = "transload.unit"
APP: Final = "transload.app"
CURSOR: Final = "transload.log"

_log = logging.getLogger("transload_prefect")


@dataclass(slots=True)
class Notes:
    """The notes about one app.

    Args:
        unit: which app of the flow run.
        name: of the task, for people.
        task_run_id: the task run that the artifact is shown with.
        artifact_id: where they are kept; None: nowhere yet.
        values: the notes, as the server has them or is about to.
        cursor: how far the log came, with lines that are not sent yet; None: nothing new.
    """

    unit: str
    name: str = ""
    task_run_id: Any = None
    artifact_id: Any = None
    values: dict[str, str] = field(default_factory=dict)
    cursor: str | None = None


class Journal:
    """The notes of one flow run.

    Args:
        flow_run_id: the flow run.
    """

    def __init__(self, flow_run_id: Any) -> None:
        self.flow_run_id = flow_run_id
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._sending = threading.Lock()
        self._notes: dict[str, Notes] | None = None
        self._lines: list[dict[str, Any]] = []
        self._since: float | None = None

    def notes(self, unit: str, name: str, task_run_id: Any) -> Notes:
        """Return the notes about an app, read from the server the first time that this process asks."""
        with self._loading:
            if self._notes is None:
                found = api.notes_of(self.flow_run_id, UNIT)
                self._notes = {
                    key: Notes(key, artifact_id=artifact_id, values=values)
                    for key, (artifact_id, values) in found.items()
                }
        with self._lock:  # not the one held while something is sent: a task does not wait for another's notes
            notes = self._notes.setdefault(unit, Notes(unit, values={UNIT: unit}))
            notes.name, notes.task_run_id = name, task_run_id
            return notes

    def save(self, notes: Notes) -> None:
        """Keep the notes about an app; when this returns, the server has them."""
        with self._sending:
            self._write(notes)

    def _write(self, notes: Notes) -> None:
        if notes.artifact_id is not None and api.update_note(notes.artifact_id, notes.values):
            return
        handle = json.loads(notes.values.get(APP, "{}")).get("handle") or ""
        notes.artifact_id = api.create_note(
            self.flow_run_id, notes.task_run_id, artifact_key(notes.name, "logs"), log_note(handle), notes.values
        )

    def line(self, name: str, level: int, message: str, task_run_id: Any) -> None:
        """Take a log line; it is sent soon, just before the cursor that covers it."""
        most = PREFECT_LOGGING_TO_API_MAX_LOG_SIZE.value() // 2
        record = {
            "name": name,
            "level": level,
            # a database may refuse the whole line for a zero byte
            "message": (message if len(message) <= most else message[:most] + " …").replace("\0", "\ufffd"),
            "timestamp": datetime.now(UTC).isoformat(),
            "flow_run_id": str(self.flow_run_id),
            # an app that the flow's own code started has no task run
            "task_run_id": None if task_run_id is None else str(task_run_id),
        }
        with self._lock:
            self._lines.append(record)
            self._begin()

    def cursor(self, notes: Notes, record: dict[str, Any]) -> None:
        """Keep how far a log came, together with the lines taken so far."""
        with self._lock:
            notes.cursor = json.dumps(record)
            self._begin()

    def flush(self) -> None:
        """Send the lines, then keep the cursors: a process killed in between repeats no more than this one batch.

        Prefect's own sender takes two seconds and cannot tell when a line has arrived.
        """
        try:
            self._send()
        except Exception:
            with self._lock:  # the server did not answer: the same again, a little later
                self._begin()
            raise

    def _send(self) -> None:
        with self._sending:
            with self._lock:
                lines, self._lines, self._since = self._lines, [], None
                cursors = [(each, each.cursor) for each in (self._notes or {}).values() if each.cursor is not None]
            try:
                while lines:
                    _deliver(lines[:BATCH])
                    del lines[:BATCH]
            finally:
                with self._lock:
                    self._lines = lines + self._lines
            for notes, cursor in cursors:
                notes.values = {**notes.values, CURSOR: cursor}
                self._write(notes)
                if notes.cursor is cursor:
                    notes.cursor = None

    def _begin(self) -> None:
        if self._since is None:
            self._since = time.monotonic()
            background().watch(self._look)

    def _look(self, last: bool) -> bool:
        if last:
            self._send_at_the_end()
            return False
        since = self._since
        if since is None:
            return False
        if time.monotonic() - since < LOG_INTERVAL:
            return True
        self.flush()
        return False

    def _send_at_the_end(self) -> None:
        """Send what is left before the process ends, trying a few times: nobody comes after this."""
        pauses = list(LAST_PAUSES)
        while True:
            try:
                return self._send()
            except Exception:
                if not pauses:
                    raise
                time.sleep(pauses.pop(0))


def _deliver(lines: list[dict[str, Any]]) -> None:
    """Send log lines; one that the server refuses for good is left out, with a word, and holds up no other."""
    try:
        api.client().create_logs(lines)
    except httpx.HTTPStatusError as exc:
        if exc.response.status_code not in REFUSED:
            raise
        if len(lines) > 1:
            half = len(lines) // 2
            _deliver(lines[:half])
            _deliver(lines[half:])
            return
        _log.warning("Prefect refused a log line: %s: %s", exc, lines[0]["message"][:200])


class AppStore:
    """A `transload.pipelines.Store` for what finds one app again.

    Args:
        journal: of the flow run.
        notes: about the app.
    """

    def __init__(self, journal: Journal, notes: Notes) -> None:
        self._journal = journal
        self._notes = notes

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""
        return _read(self._notes, APP)

    def put(self, record: dict[str, Any]) -> None:
        """Keep a record; a handle is sent while the app starts, a loss before this returns.

        Ids follow from the flow run: a process killed before a handle arrived finds its app all the same. For the same
        reason the intent alone is not sent.
        """
        if record.get("handle") is None and not record.get("lost"):
            return
        self._notes.values = {**self._notes.values, APP: json.dumps(record)}
        if record.get("lost"):
            self._journal.save(self._notes)
        else:
            background().post(lambda: self._journal.save(self._notes))


class CursorStore:
    """A `transload.pipelines.Store` for how far the logs of one app came.

    Args:
        journal: of the flow run.
        notes: about the app.
    """

    def __init__(self, journal: Journal, notes: Notes) -> None:
        self._journal = journal
        self._notes = notes

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""
        return _read(self._notes, CURSOR) if self._notes.cursor is None else _record(self._notes.cursor)

    def put(self, record: dict[str, Any]) -> None:
        """Keep a record, with the next batch of lines."""
        self._journal.cursor(self._notes, record)


def _read(notes: Notes, what: str) -> dict[str, Any] | None:
    return _record(notes.values.get(what))


def _record(text: str | None) -> dict[str, Any] | None:
    record = None if text is None else json.loads(text)
    return record if isinstance(record, dict) else None


_journals: dict[str, Journal] = {}
_journals_lock = threading.Lock()


def journal_of(flow_run: Any) -> Journal:
    """Return the journal of a flow run."""
    with _journals_lock:
        found = _journals.get(str(flow_run.id))
        if found is None:
            if len(_journals) > 256:
                _journals.pop(next(iter(_journals)))
            found = _journals[str(flow_run.id)] = Journal(flow_run.id)
        return found
