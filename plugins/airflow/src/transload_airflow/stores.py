"""Where Airflow keeps the few facts that reattaching and log forwarding need."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from transload_airflow.task_instance import try_is_over

if TYPE_CHECKING:
    from transload.pipelines import Identity

KEY: Final = "transload"
"""Prefix of the keys in Airflow's task state store."""

LOG_INTERVAL: Final = 1.0
"""Seconds between two notes of how far the logs came. Each is a request to Airflow's API server."""

_logger = logging.getLogger(__name__)


APPS: Final = "apps"
"""Entry in which a task keeps the records of its jobs."""

LOGS: Final = "logs"
"""Entry in which a task keeps how far it has handed on the lines of its jobs."""


class TaskStore:
    """A ``transload.pipelines.AttachStore`` in Airflow's task state store.

    What it keeps survives retries, and never expires.

    Args:
        accessor: ``context["task_state_store"]``. Only the task's own process may use it. A trigger
            would hang.
        entry: which entry.
        key: whose record in that entry, which has one for each of the task's jobs.
        over: called when Airflow refuses a record because the task has another try by now, unless
            it is None.
    """

    def __init__(
        self,
        accessor: Any,
        entry: str,
        key: str = "",
        *,
        over: Callable[[], object] | None = None,
    ) -> None:
        self._accessor = accessor
        self._entry = f"{KEY}.{entry}"
        self._key = key
        self._over = over

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""
        found = self._records().get(self._key)
        if not isinstance(found, Mapping):
            return None
        return dict(found)

    def _records(self) -> dict[str, Any]:
        found = self._accessor.get(self._entry)
        if not isinstance(found, Mapping):
            return {}
        return dict(found)

    def put(self, record: dict[str, Any]) -> None:
        """Keep ``record``.

        Raises:
            airflow.sdk.exceptions.AirflowRuntimeError: if Airflow refuses it.
        """
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        records = self._records()
        records[self._key] = record
        try:
            self._accessor.set(self._entry, records, retention=NEVER_EXPIRE)
        except Exception as exc:
            if self._over is not None and try_is_over(exc):
                self._over()
            raise


class LogStore(TaskStore):
    """A `TaskStore` for log positions. Not every one of them is sent, and `flush` sends the latest.

    A position that cannot be sent fails nothing, since it costs only a repeated line. Airflow
    refuses it, for one, as soon as somebody has cleared the task, some seconds before it ends the
    process.

    Args:
        accessor: see `TaskStore`.
        entry: see `TaskStore`.
        key: see `TaskStore`.
        beside: what a trigger of this task keeps on its machine, which may be this one. It may have
            come further.
    """

    def __init__(
        self, accessor: Any, entry: str, key: str = "", *, beside: CursorFile | None = None
    ) -> None:
        super().__init__(accessor, entry, key)
        self._beside = beside
        self._pending: dict[str, Any] | None = None
        self._next = 0.0
        self._refused = False

    def get(self) -> dict[str, Any] | None:
        """Return what was put last, by this task or by its trigger, or None."""
        own = super().get()
        if self._beside is None:
            return own
        found = [record for record in (own, self._beside.get()) if record is not None]
        return max(found, key=lambda record: float(record.get("at") or 0.0), default=None)

    def forget(self) -> None:
        """Remove what a trigger of this task has kept on this machine, once the job has ended."""
        if self._beside is not None:
            self._beside.delete()

    def put(self, record: dict[str, Any]) -> None:
        """Keep ``record`` now or at the next `flush`."""
        self._pending = {**record, "at": time.time()}
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Send what was held back."""
        pending = self._pending
        if pending is None:
            return
        self._pending = None
        self._next = time.monotonic() + LOG_INTERVAL
        try:
            super().put(pending)
        except Exception as exc:
            if not self._refused:
                _logger.warning("how far the logs came cannot be noted: %s", exc)
            self._refused = True


class CursorFile:
    """A store for a trigger's position in a job's logs, in a file on the triggerer's machine.

    A triggerer that is started again goes on there. On another machine, lines since the deferral
    come once more. The task state store cannot be used in a trigger. Several tasks may wait for one
    job, each with a separate identity.

    Args:
        identity: of the job, as in ``transload.pipelines.Driver.state``.
    """

    def __init__(self, identity: Sequence[Any]) -> None:
        from transload.schedulers.folder.home import state_home

        name = sha256(json.dumps(list(identity)).encode()).hexdigest()[:32]
        self.path = os.path.join(state_home(), "airflow", f"{name}.json")

    @staticmethod
    def of(identity: Identity) -> CursorFile:
        """Return the store of a job."""
        return CursorFile([identity.host, list(identity.run), list(identity.path)])

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""
        try:
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict):
            return None
        return found

    def put(self, record: dict[str, Any]) -> None:
        """Keep ``record``, if there is room.

        It is not forced to the disk, since a power cut costs only a repeated line.
        """
        from transload.keeper.layout import write_file
        from transload.schedulers.folder.home import make_private

        with suppress(OSError):
            make_private(os.path.dirname(self.path))
            write_file(self.path, json.dumps({**record, "at": time.time()}).encode())

    def delete(self) -> None:
        """Remove what was put."""
        with suppress(OSError):
            os.unlink(self.path)
