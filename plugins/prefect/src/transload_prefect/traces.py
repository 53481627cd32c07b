"""What a task run leaves behind in Prefect: log lines, events, artifacts, assets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from prefect.assets import Asset
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.context import AssetContext
from prefect.events import emit_event
from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED

from transload.schedulers.api import Stream
from transload.specs import is_terminal
from transload_prefect import api
from transload_prefect.artifacts import artifact_key, progress, replica_rows, result_rows, table, trial_rows
from transload_prefect.background import background

if TYPE_CHECKING:
    from transload.pipelines import Execution
    from transload.runner import AppResults
    from transload.specs import AppStatus
    from transload_prefect.notes import Cursor


class TrialTable:
    """The table of a search's trials, an artifact of its flow run; written in the background.

    Args:
        name: of the search's flow, for the key.
        flow_run_id: where it belongs; None: nowhere.
    """

    def __init__(self, name: str, flow_run_id: UUID | None) -> None:
        self._key = artifact_key(name, "trials")
        self._flow_run_id = flow_run_id
        self._made: UUID | None = None

    def show(self, summary: Mapping[str, Any]) -> None:
        """Show how far the search is."""
        data, best = table(trial_rows(summary)), summary["best"]
        text = f"trials of the search kept in {summary['tracker_base']}; best so far: {best['index'] if best else '-'}"
        if self._made is None:
            made = ArtifactCreate(key=self._key, type="table", data=data, description=text)
            made.flow_run_id = self._flow_run_id
            self._made = api.client().create_artifact(made).id
        else:
            api.client().update_artifact(self._made, ArtifactUpdate(data=data, description=text))


class Traces:
    """The traces of one app in one task run.

    Args:
        name: of the task, for keys of artifacts.
        flow_run_id: where artifacts belong; None: nowhere.
        task_run_id: likewise.
        logger: the run logger.
        cursor: is told of each line that Prefect's logger sends; None: nobody is.
        artifacts: write artifacts.
        events: emit events.
        stderr_level: level of lines of stderr; others are INFO.
    """

    def __init__(
        self,
        name: str,
        flow_run_id: UUID | None,
        task_run_id: UUID | None,
        logger: Any,
        cursor: Cursor | None,
        *,
        artifacts: bool,
        events: bool,
        stderr_level: int,
    ) -> None:
        self._name = name
        self._flow_run_id = flow_run_id
        self._task_run_id = task_run_id
        self._logger = logger
        self._cursor = cursor
        self._artifacts = artifacts and (flow_run_id is not None or task_run_id is not None)
        self._events = events
        self._stderr_level = stderr_level
        self._progress: UUID | None = None
        self._shown: float | None = None
        self._finished = False
        self._lock = threading.Lock()

    def log(self, message: str) -> None:
        """Log a line of the adapter's own."""
        self._logger.info("%s", message)

    def sink(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Log a line of a replica."""
        level = self._stderr_level if stream is Stream.STDERR else logging.INFO
        # a database may refuse a whole batch of lines for a zero byte
        text = line.rstrip().replace("\0", "\ufffd")
        sent = PREFECT_LOGGING_TO_API_ENABLED.value() and self._logger.isEnabledFor(level)
        if self._cursor is not None and sent:
            self._cursor.handing()
        self._logger.log(level, "%s", f"{role}/{replica} {text}")

    def changed(self, execution: Execution, status: AppStatus) -> None:
        """Take note of a new status."""
        handle = execution.handle or ""
        if self._events:
            emit_event(
                event=f"transload.app.{status.state.name.lower()}",
                resource={"prefect.resource.id": f"transload.app.{handle}", "prefect.resource.name": self._name},
                payload={"handle": handle, "state": status.state.name, "message": status.msg},
                related=self._related(),
                id=uuid5(NAMESPACE_URL, f"{handle}/{status.state.name}/{status.num_restarts}"),
            )
        if self._artifacts and not is_terminal(status.state):
            background().post(lambda: self._show_progress(progress(status), handle))

    def done(self, execution: Execution, results: AppResults | None, assets: bool | list[str]) -> None:
        """Take note of the end."""
        status, handle = execution.status, execution.handle
        if status is None or handle is None:
            return
        if self._artifacts:
            background().post(lambda: self._write(execution, status, handle, results))
        if results is not None and assets:
            self._materialize(results, assets)

    def _related(self) -> list[dict[str, str]]:
        ids = (("flow-run", self._flow_run_id), ("task-run", self._task_run_id))
        return [
            {"prefect.resource.id": f"prefect.{role}.{each}", "prefect.resource.role": role}
            for role, each in ids
            if each is not None
        ]

    # -- artifacts, in the background thread

    def _show_progress(self, percent: float, handle: str) -> None:
        with self._lock:
            if percent == self._shown:
                return
            if self._progress is None:
                self._progress = self._create("progress", "progress", percent, f"replicas of {handle} that have ended")
            else:
                api.client().update_artifact(self._progress, ArtifactUpdate(data=percent))
            self._shown = percent

    def _write(self, execution: Execution, status: AppStatus, handle: str, results: AppResults | None) -> None:
        self._show_progress(progress(status), handle)
        title = f"{handle}: {status.state.name}"
        self._create("replicas", "table", table(replica_rows(status)), f"replicas of {title}")
        if results is not None and results.results:
            self._create("results", "table", table(result_rows(results)), f"results of {handle}")

    def _create(self, what: str, kind: str, data: Any, description: str) -> UUID:
        made = ArtifactCreate(key=artifact_key(self._name, what), type=kind, data=data, description=description)
        if self._flow_run_id is not None:
            made.flow_run_id = self._flow_run_id
        if self._task_run_id is not None:
            made.task_run_id = self._task_run_id
        created: UUID = api.client().create_artifact(made).id
        return created

    # -- assets

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
