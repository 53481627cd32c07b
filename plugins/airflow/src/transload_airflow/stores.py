"""Where Airflow keeps the few facts that re-attaching and log forwarding need."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

KEY: Final = "transload"
"""Prefix of the keys in Airflow's task state store."""

LOG_INTERVAL: Final = 1.0
"""Seconds between two notes of how far the logs came: each is a request to Airflow's API server."""


def app_entry(unit: str) -> str:
    """Return under which key a task keeps the record of its app; ``unit``: which of its apps, if it
    has several.
    """
    return f"app.{unit}" if unit else "app"


def log_entry(unit: str) -> str:
    """Return under which key a task keeps how far it has handed on the lines of an app."""
    return f"logs.{unit}" if unit else "logs"


def state_store(context: Mapping[str, Any]) -> Any | None:
    """Return the task state store (Airflow 3.3), or None where there is none."""
    return context.get("task_state_store")


class TaskStore:
    """A ``transload.pipelines.Store`` in Airflow's task state store: it survives retries, and never
    expires.

    Args:
        accessor: ``context["task_state_store"]``; only the task's own process may use it, a trigger
            would hang.
        key: which entry.
        more: what is kept with each record.
    """

    def __init__(self, accessor: Any, key: str, **more: Any) -> None:
        self._accessor, self._key, self._more = accessor, f"{KEY}.{key}", more

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""
        found = self._accessor.get(self._key)
        return dict(found) if isinstance(found, Mapping) else None

    def put(self, record: dict[str, Any]) -> None:
        """Keep ``record``."""
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        self._accessor.set(self._key, {**record, **self._more}, retention=NEVER_EXPIRE)


class LogStore(TaskStore):
    """A `TaskStore` for log positions: not every one of them is sent; `flush` sends the latest.

    A position that cannot be sent fails nothing: all that it costs is a repeated line. Airflow
    refuses it, for one, as soon as somebody has cleared the task, some seconds before it ends the
    process.

    Args:
        accessor: see `TaskStore`.
        key: likewise.
        beside: what a trigger of this task keeps on its machine, which may be this one; it may have
            come further.
    """

    def __init__(self, accessor: Any, key: str, beside: CursorFile | None = None) -> None:
        super().__init__(accessor, key)
        self._beside = beside
        self._pending: dict[str, Any] | None = None
        self._next = 0.0
        self._refused = False

    def get(self) -> dict[str, Any] | None:
        """Return what was put last, by this task or by its trigger; None: nothing."""
        records = [super().get(), self._beside.get() if self._beside is not None else None]
        found = [record for record in records if record is not None]
        return max(found, key=lambda record: float(record.get("at") or 0.0), default=None)

    def forget(self) -> None:
        """Remove what a trigger of this task has kept on this machine: its app has ended."""
        if self._beside is not None:
            self._beside.delete()

    def put(self, record: dict[str, Any]) -> None:
        """Keep ``record``, at once or at the next `flush`."""
        self._pending = {**record, "at": time.time()}
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Send what was held back."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._next = time.monotonic() + LOG_INTERVAL
            try:
                super().put(pending)
            except Exception as exc:
                if not self._refused:
                    logging.getLogger(__name__).warning(
                        "how far the logs came cannot be noted: %s", exc
                    )
                self._refused = True


class CursorFile:
    """A store for how far a trigger has handed on the logs of an app: a file on the triggerer's
    machine.

    A triggerer that is started again goes on there; on another machine, lines since the deferral
    come once more. The task state store cannot be used in a trigger. Several tasks may wait for one
    app: each has an identity of its own.

    Args:
        identity: of the app, as in ``transload.pipelines.Execution.state``.
    """

    def __init__(self, identity: Sequence[Any]) -> None:
        from transload.schedulers.local.home import state_home

        name = sha256(json.dumps(list(identity)).encode()).hexdigest()[:32]
        self.path = os.path.join(state_home(), "airflow", f"{name}.json")

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""
        try:
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def put(self, record: dict[str, Any]) -> None:
        """Keep ``record``, if there is room. Without fsync: what a power cut takes is only a
        repeated line, too.
        """
        from transload.schedulers.local.home import make_private
        from transload.schedulers.local.supervisor.layout import write_file

        with suppress(OSError):
            make_private(os.path.dirname(self.path))
            write_file(self.path, json.dumps({**record, "at": time.time()}).encode())

    def delete(self) -> None:
        """Forget it."""
        with suppress(OSError):
            os.unlink(self.path)
