"""Waiting in the triggerer: no worker slot is held, one thread for each scheduler watches all its
apps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from transload import pipelines
from transload.runner import Cluster
from transload.specs import make_app_handle, parse_app_handle
from transload_airflow.masks import Reads
from transload_airflow.run import (
    OVER,
    cancel,
    log_line_in_pieces,
    task_state,
)
from transload_airflow.runner import HOST, runner_for_tasks
from transload_airflow.settling import lines_are_read, wait_until_released
from transload_airflow.stores import CursorFile


class AppStateTrigger(BaseTrigger):
    """Fires once an app has ended, or cannot be waited for here; hands on its log lines meanwhile.

    The event is what ``transload.pipelines.outcome`` returns. Stopping the triggerer leaves the app
    alone; a person who marks or clears the deferred task ends it, if the operator said
    ``on_kill="cancel"``.

    Args:
        state: from ``transload.pipelines.Execution.state``.
        forward_logs: put the app's lines into the log of the task.
        left: from ``transload_airflow.settling.mark_deferred``, of the process that defers; None: none.
        reads: from ``transload_airflow.masks.Reads.to_dict``: what to hide in the lines; None:
            nothing.
    """

    def __init__(
        self,
        state: dict[str, Any],
        forward_logs: bool = True,
        left: dict[str, Any] | None = None,
        reads: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.state = dict(state)
        self.forward_logs = forward_logs
        self.left = dict(left or {})
        self.reads = dict(reads or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path and the arguments, JSON values all."""
        return (
            "transload_airflow.triggers.AppStateTrigger",
            {
                "state": self.state,
                "forward_logs": self.forward_logs,
                "left": self.left,
                "reads": self.reads,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield the one event."""
        settling = asyncio.create_task(wait_until_released(self.left))
        try:
            outcome, store = await self._wait()
            outcome["state"]["link"] = self.state.get("link")
            await settling
            await lines_are_read()
        except asyncio.CancelledError:
            await self._left_alone()
            raise
        except Exception:
            await settling  # Airflow takes a trigger that breaks as an event
            raise
        finally:
            settling.cancel()
        yield TriggerEvent(outcome)
        if store is not None and self.state.get("place") != pipelines.where():
            # else the task does: should it die before it has come back, its next try goes on there
            store.delete()

    def _positions(self) -> CursorFile | None:
        """Return where the log positions of this task are kept; None if it hands on none."""
        return CursorFile(self.state["identity"]) if self.forward_logs else None

    async def _wait(self) -> tuple[dict[str, Any], CursorFile | None]:
        await Reads.from_dict(self.reads).hide_all_async(self.log)
        store = self._positions()
        state = dict(self.state)
        kept = store.get() if store is not None else None
        if kept is not None and kept.get("handle") == state["handle"]:
            state["cursor"] = None  # an earlier triggerer came further than the task that deferred
        execution = pipelines.Execution.from_state(
            state,
            runner_for_tasks(),
            sink=log_line_in_pieces if self.forward_logs else None,
            log_store=store,
            log=self.log.info,
        )
        # a cluster may have secrets in a connection: asking for it blocks, which this event loop
        # must not
        await asyncio.to_thread(
            execution.runner.scheduler, parse_app_handle(state["handle"]).scheduler_backend
        )
        return await pipelines.outcome(execution), store

    async def on_kill(self) -> None:
        """Cancel the app, or leave it: a person has marked or cleared the deferred task (Airflow
        3.3).
        """
        if self.state["options"].get("on_kill") != "cancel":
            return
        execution = pipelines.Execution.from_state(
            self.state, runner_for_tasks(), log=self.log.warning
        )
        self.log.info("the task was ended: %s is being cancelled", execution.handle)
        await asyncio.to_thread(cancel, execution)
        if (positions := self._positions()) is not None:
            positions.delete()

    async def _left_alone(self) -> None:
        """Do what `on_kill` does where Airflow is older and does not call it, if the task is no
        longer to run.
        """
        if hasattr(BaseTrigger, "on_kill"):
            return
        # not in a thread of our own: Airflow's line to its supervisor belongs to this event loop,
        # and breaks elsewhere
        try:
            if await sync_to_async(task_state)(self.task_instance) in OVER:
                await self.on_kill()
        except Exception as exc:  # a trigger that breaks would fail the task
            self.log.warning(
                "whether the task was ended cannot be found out, its app goes on: %s", exc
            )


async def end_app(record: dict[str, Any] | None = None, **trigger: Any) -> None:
    """Do what `AppStateTrigger.on_kill` does, for a trigger that does not run, or what a task has
    stored of its app.
    """
    if record is not None:
        cluster = Cluster.from_dict(record["cluster"]) if record.get("cluster") else None
        who = pipelines.Identity(HOST, "", (), record["generation"])
        options = pipelines.ExecutionOptions(on_kill=record["on_kill"])
        execution = pipelines.Execution(runner_for_tasks(cluster=cluster), None, who, options)
        execution.attach(make_app_handle(record["scheduler"], HOST, record["app_id"]))
        trigger = {"state": execution.state(), "forward_logs": False}
    await AppStateTrigger(**trigger).on_kill()
