"""Wait in the triggerer.

No worker slot is held, and one thread for each scheduler watches all its jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from transload.pipelines import LAST_LINES
from transload_airflow.deferral import lines_are_read, wait_until_released
from transload_airflow.masks import Reads
from transload_airflow.step import TriggerStep
from transload_airflow.task_instance import OVER, task_state

RESTARTED_S: Final = 60.0
"""Seconds after its task has deferred from which on a trigger is taken for one that is started again.

An earlier one has handed on lines by then, and this one goes on with the last ones.
"""


class AppStateTrigger(BaseTrigger):
    """Fires once a job has ended, or cannot be waited for here. Until then it hands on log lines.

    The event is that of ``transload.pipelines.Step.event``, with the ``identity`` of the job. A
    triggerer submits nothing, and stores nothing of the job. Stopping the triggerer leaves the job
    alone. A person who marks or clears the deferred task ends it, if the operator has
    ``on_kill="cancel"``.

    Args:
        state: from ``transload_airflow.step.AirflowStep.to_dict``.
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
            event = await self._wait()
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
        yield TriggerEvent({**event, "identity": self.state["identity"]})

    async def _wait(self) -> dict[str, Any]:
        """Wait until the task is to go on, and return the event."""
        await Reads.from_dict(self.reads).hide_all_async(self.log)
        # a cluster may have secrets in a connection, and asking for them blocks
        step = await asyncio.to_thread(self._step)
        return await step.event(self.state["place"])

    def _step(self) -> TriggerStep:
        """Return what waits for the job."""
        step = TriggerStep(self.state, self.log, hands_on_lines=self.forward_logs)
        handle = self.state["handle"]
        if time.time() - self.state["at"] < RESTARTED_S:
            step.attach(handle, self.state["cursor"])
            return step
        if self.forward_logs:
            self.log.info(
                "waiting again for %s. Its last %d lines follow; to see all of them: transload log "
                "%s",
                handle,
                LAST_LINES,
                handle,
            )
        step.attach(handle, last=LAST_LINES)
        return step

    async def on_kill(self) -> None:
        """Cancel the job or leave it, after a person has marked or cleared the deferred task.

        Airflow calls it from 3.3 on.
        """
        if self.state["options"].get("on_kill") != "cancel":
            return
        self.log.info("the task was ended: %s is being cancelled", self.state["handle"])
        await asyncio.to_thread(self._cancel)

    def _cancel(self) -> None:
        step = TriggerStep(self.state, self.log)
        step.attach(self.state["handle"])
        step.cancel_for_long()

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
