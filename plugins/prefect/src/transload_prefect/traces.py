"""Leave traces of a task run in Prefect, as log lines, events, artifacts and assets."""

from __future__ import annotations

import logging
import re
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from prefect.assets import Asset
from prefect.context import AssetContext
from prefect.events import emit_event

from transload.schedulers.api import Stream
from transload.specs import is_terminal
from transload_prefect import api
from transload_prefect.artifacts import (
    artifact_key,
    bar_of,
    file_rows,
    replica_rows,
    result_rows,
    table,
)
from transload_prefect.background import background
from transload_prefect.notes import notes_of

if TYPE_CHECKING:
    from transload.runner import AppResults
    from transload.specs import AppStatus
    from transload_prefect.runs import RunContext


PROGRESS_S: Final = 1.0
"""Seconds after which a job that goes on has a bar of progress.

A job that has ended by then has none.
"""

_LEVEL_WITHIN: Final = 120
"""Characters at the beginning of a line among which it says its level."""

_SAYS_LEVEL: Final = re.compile(
    r"[^a-zA-Z]*(?:(?<=\d)[TZ][^a-zA-Z]*)*"  # a time, or nothing
    r"(?:[\w.\-]+(?:\[\d+\])?\s*[-|:\]]\s*[\[|]?)?"  # the name of a logger or a process, or nothing
    r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|(?i:debug|info|warning|error|critical|fatal)(?=:\s))\b"
)
"""How a line begins that says its level.

Examples are ``WARNING:root:…`` and ``2026-11-25 10:00:00,123 - name - ERROR - …``.
"""

_GLOG: Final = re.compile(r"(?:\[rank\d+\]:)?(?=\[|\w\d)\[?(?P<level>[IWEF])(?:\d{4})? ")
"""How lines of glog and PyTorch begin, as ``W1125 10:00:00.1 …``, ``[W socket.cpp:663] …``."""

_WARNS: Final = re.compile(r"\S+:\d+: \w*Warning: ")
"""How a warning of Python's begins."""

_LEVELS: Final = {
    "DEBUG": logging.INFO,
    "INFO": logging.INFO,
    "I": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "W": logging.WARNING,
    "ERROR": logging.ERROR,
    "E": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "FATAL": logging.CRITICAL,
    "F": logging.CRITICAL,
}


def said_level(line: str) -> int:
    """Return the level that a line of a program's log says it has, at least INFO.

    A lower level would not be shown. A line that says nothing is INFO, since Python's logging,
    progress bars and many programs write to stderr while all is well.
    """
    found = _SAYS_LEVEL.match(line[:_LEVEL_WITHIN]) or _GLOG.match(line)
    if found is None:
        return logging.WARNING if _WARNS.match(line) else logging.INFO
    return _LEVELS[found["level"].upper()]


class Traces:
    """The traces of one job.

    ``notes`` shows where it is (None: nothing finds it again). ``stderr_level`` is the level of all
    lines on stderr. With None it is the level that a line names, else INFO.
    """

    def __init__(
        self,
        context: RunContext,
        logger: Any,
        *,
        artifacts: bool,
        events: bool,
        stderr_level: int | None = None,
    ) -> None:
        self.context = context
        self.notes = notes_of(context)
        self._logger = logger
        self._artifacts = artifacts
        self._events = events
        self._stderr_level = stderr_level
        self._bar: UUID | None = None
        self._shown: int | None = None
        self._to_show: tuple[str, AppStatus] | None = None
        self._lock = threading.Lock()
        self._refused = False
        self._emitted: UUID | None = None
        self._seen: AppStatus | None = None
        self._collected = False

    def log(self, message: str) -> None:
        """Log a line of the adapter's own, at the level that it begins with."""
        level = logging.INFO
        if message.startswith("warning: "):
            level = logging.WARNING
        self._say(level, message)

    def sink(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Log a line of a replica."""
        level = logging.INFO
        if stream is Stream.STDERR:
            level = self._level(line)
        # a database may refuse a whole batch of lines for a zero byte
        text = line.rstrip().replace("\0", "\ufffd")
        self._say(level, f"{role}/{replica} {text}")

    def _level(self, line: str) -> int:
        """Return the level of a line on stderr, as the user set it, else as the line says."""
        if self._stderr_level is not None:
            return self._stderr_level
        return said_level(line)

    def _say(self, level: int, text: str) -> None:
        try:
            self._logger.log(level, "%s", text)
        except (
            SystemExit
        ) as exc:  # rich's own, once, when nobody reads what this process writes any more
            if not isinstance(exc.__context__, BrokenPipeError):
                raise

    def changed(self, handle: str, status: AppStatus) -> None:
        """Take note of a new status of the job."""
        first = self._seen is None
        self._seen = status
        if first and self.notes is not None:
            self.notes.submitted(handle)
        if first:
            self.log(f"{handle}: all of its log is shown by `transload log {handle}`")
        if self._events:
            self._emit(handle, status)
        if not self._artifacts:
            return
        if is_terminal(status.state):
            background().post(partial(self._show_end, handle, status))
        elif first:
            background().post(partial(self._show_if_it_runs, handle), after=PROGRESS_S)
        elif self._bar is not None:
            self.show_progress(handle, status)

    def show_progress(self, handle: str, status: AppStatus) -> None:
        """Show how far the job is as soon as Prefect takes it, and never wait for that.

        Of what comes meanwhile, only the newest is shown.
        """
        if not self._artifacts:
            return
        with self._lock:
            is_awaited = self._to_show is not None
            self._to_show = (handle, status)
        if not is_awaited:
            background().post(self._show_newest)

    def _emit(self, handle: str, status: AppStatus) -> None:
        """Emit an event if the job is in another state than before, or was started again."""
        moment = f"{handle}/{status.state.name}/{status.num_restarts}"
        if status.interruptions:
            moment += f"/{status.interruptions}"
        event_id = uuid5(NAMESPACE_URL, moment)
        if event_id == self._emitted:
            return
        self._emitted = event_id
        emit = partial(
            emit_event,
            event=f"transload.app.{status.state.name.lower()}",
            resource={
                "prefect.resource.id": f"transload.app.{handle}",
                "prefect.resource.name": self.context.name,
            },
            payload={"handle": handle, "state": status.state.name, "message": status.msg},
            related=self._related(),
            id=event_id,
        )
        background().post(emit)  # it serialises, which the end of a short job need not wait for

    def collected(self, results: AppResults, assets: bool | list[str] = False) -> None:
        """Take note of the results, once."""
        if self._collected:
            return
        self._collected = True
        for what, rows in (("results", result_rows(results)), ("files", file_rows(results))):
            if self._artifacts and rows:
                background().post(
                    partial(self._create, what, "table", table(rows), f"{what} of {results.handle}")
                )
        if assets:
            self._materialize(results, assets)

    def _related(self) -> list[dict[str, str]]:
        ids = (("flow-run", self.context.flow_run_id), ("task-run", self.context.task_run_id))
        return [
            {"prefect.resource.id": f"prefect.{role}.{each}", "prefect.resource.role": role}
            for role, each in ids
            if each is not None
        ]

    def _show_if_it_runs(self, handle: str) -> None:
        if self._seen is not None and not is_terminal(self._seen.state):
            self._show(handle, self._seen)

    def _show_newest(self) -> None:
        with self._lock:
            newest = self._to_show
            self._to_show = None
        if newest is not None:
            self._show(*newest)

    def _show(self, handle: str, status: AppStatus) -> None:
        """Show a job's progress, if it is another percent than the one that is shown."""
        bar = bar_of(handle, status, time.time())
        if bar.percent == self._shown:
            return
        self._shown = bar.percent
        try:
            if self._bar is None:
                self._bar = self._create("progress", "progress", bar.percent, bar.description)
            else:
                api.update_artifact(self._bar, data=bar.percent, description=bar.description)
        except Exception as exc:
            # whatever Prefect says to it, the job goes on
            if not self._refused:
                self.log(f"warning: progress is not shown: {type(exc).__name__}: {exc}")
            self._refused = True

    def _show_end(self, handle: str, status: AppStatus) -> None:
        if self._bar is not None:
            self._show(handle, status)
        title = f"replicas of {handle}: {status.state.name}"
        self._create("replicas", "table", table(replica_rows(status)), title)

    def _create(self, what: str, kind: str, data: str | float, description: str) -> UUID:
        return api.create_artifact(
            self.context.flow_run_id,
            self.context.task_run_id,
            key=artifact_key(self.context.name, what),
            type=kind,
            data=data,
            description=description,
        )

    def _materialize(self, results: AppResults, assets: bool | list[str]) -> None:
        context = AssetContext.get()
        if context is None:
            return
        found = dict.fromkeys(assets, results.metadata) if isinstance(assets, list) else {}
        if not isinstance(assets, list):
            for name, each in results.artifacts.items():
                path = str(each.get("path", ""))
                uri = path if "://" in path else f"file://{path}"
                found[uri] = {"name": name, **dict(each.get("metadata") or {})}
        for uri, metadata in found.items():
            try:
                context.downstream_assets.add(Asset(key=uri))
            except ValueError as exc:
                self._logger.warning("%s is no asset of Prefect: %s", uri, str(exc).splitlines()[0])
                continue
            context.add_asset_metadata(uri, {"transload.handle": results.handle, **metadata})
        context.update_tracked_assets()
