"""Wait in the triggerer.

No worker slot is held, and one thread for each scheduler watches all its jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from transload import pipelines
from transload.pipelines import Driver
from transload.specs import parse_app_handle
from transload_airflow.adapter import ADAPTER, TaskContext, cancel
from transload_airflow.deferral import lines_are_read, wait_until_released
from transload_airflow.log_lines import log_line_in_pieces, log_of_task
from transload_airflow.masks import Reads
from transload_airflow.stores import CursorFile
from transload_airflow.task_instance import OVER, task_state


class AppStateTrigger(BaseTrigger):
    """Fires once a job has ended, or cannot be waited for here. Until then it hands on log lines.

    The event is the return value of ``transload.pipelines.outcome``. A triggerer submits and stores
    nothing of the job. It hands such work back with the state. Stopping the triggerer leaves the
    job alone. A person who marks or clears the deferred task ends it, if the operator has
    ``on_kill="cancel"``.

    Args:
        state: from ``transload.pipelines.Driver.state``.
        forward_logs: put the job's lines into the log of the task.
        left: from ``transload_airflow.deferral.mark_deferred``, of the process that defers, or None
            if it need not be waited for.
        reads: from ``transload_airflow.masks.Reads.to_dict``: what to hide in the lines, or None
            for nothing.
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
        arguments = {
            "state": self.state,
            "forward_logs": self.forward_logs,
            "left": self.left,
            "reads": self.reads,
        }
        return "transload_airflow.triggers.AppStateTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield the one event."""
        released = asyncio.create_task(wait_until_released(self.left))
        try:
            positions = self._positions()
            waited = await self._wait(positions)
            waited["state"]["link"] = self.state.get("link")
            waited["state"]["key"] = self.state.get("key")
            await released
            await lines_are_read()
        except asyncio.CancelledError:
            await self._left_alone()
            raise
        except Exception:
            await released  # Airflow takes a trigger that breaks as an event
            raise
        finally:
            released.cancel()
        yield TriggerEvent(waited)
        if positions is not None and self.state.get("place") != pipelines.where():
            # on its own machine the task deletes it: should the task die before it has come back,
            # its next try goes on there
            positions.delete()

    def _positions(self) -> CursorFile | None:
        """Return where the log positions of this task are kept, or None if it hands on no lines."""
        if not self.forward_logs:
            return None
        return CursorFile(self.state["identity"])

    async def _wait(self, positions: CursorFile | None) -> dict[str, Any]:
        """Follow the job, and return what became of it."""
        await Reads.from_dict(self.reads).hide_all_async(self.log)
        state = dict(self.state)
        step = TaskContext(log=log_of_task(self.log), may_save=False)
        if positions is not None:
            step.log_store = positions
            step.sink = log_line_in_pieces
            kept = positions.get()
            if kept is not None and kept.get("handle") == state["handle"]:
                state["cursor"] = None  # an earlier triggerer came further than the task
        driver = await asyncio.to_thread(_restored, step, state)
        return await pipelines.outcome(driver)

    async def on_kill(self) -> None:
        """Cancel the job or leave it, after a person has marked or cleared the deferred task.

        Airflow calls it from 3.3 on.
        """
        if self.state["options"].get("on_kill") != "cancel":
            return
        driver = ADAPTER.restore(TaskContext(log=self.log.warning, may_save=False), self.state)
        self.log.info("the task was ended: %s is being cancelled", driver.handle)
        await asyncio.to_thread(cancel, driver)
        positions = self._positions()
        if positions is not None:
            positions.delete()

    async def _left_alone(self) -> None:
        """Do what `on_kill` does if the task is no longer to run.

        An older Airflow does not call `on_kill` itself.
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
                "whether the task was ended cannot be found out, its job goes on: %s", exc
            )


def _restored(step: TaskContext, state: dict[str, Any]) -> Driver:
    """Return what watches the job of a state, once its scheduler is known.

    A cluster may have secrets in a connection. Asking for them blocks.
    """
    driver = ADAPTER.restore(step, state)
    driver.runner.scheduler(parse_app_handle(state["handle"]).scheduler_backend)
    return driver
