"""Ending the job of a task that is marked in the moment in which it defers.

Airflow refuses a deferral that comes too late, and calls nothing of the task any more. But it calls
listeners as the task's process stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.common.compat.sdk import AirflowPlugin, hookimpl

if TYPE_CHECKING:
    from transload_airflow.step import AirflowStep

departing: Final[list[AirflowStep]] = []
"""The steps of the tasks that this process is about to defer."""


class Listener:
    """Listens in each process of Airflow."""

    @hookimpl
    def before_stopping(self, component: object) -> None:
        """End the job of a task that was marked before it could defer.

        It is the last that Airflow calls in the task's process.
        """
        while departing:
            step = departing.pop()
            if step.asked():
                step.give_up(asked=True)


class ListenerPlugin(AirflowPlugin):
    """What Airflow loads the listener by."""

    name = "transload"
    listeners: ClassVar[list[Any]] = [Listener()]
