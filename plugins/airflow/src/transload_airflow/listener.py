"""Ending the app of a task that a person marks while it is on its way to the triggerer.

A trigger's ``on_kill`` is called only where a triggerer runs it: a mark before that, or while none runs, reaches nobody
(seen in Airflow 3.3.2). But the API server tells listeners of each mark, and a deferral that comes too late is refused.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from airflow.providers.common.compat.sdk import AirflowPlugin, hookimpl

departing: Final[list[tuple[Any, Any]]] = []
"""Task instance of the task that this process is about to defer, and the execution of its app."""


class Listener:
    """Listens in each process of Airflow."""

    @hookimpl
    def before_stopping(self, component: object) -> None:
        """End the app of a task that was marked before it could defer: the last that is called in its process."""
        while departing:
            from transload_airflow.run import task_state

            ti, execution = departing.pop()
            if task_state(ti) in ("failed", "success", "skipped"):
                execution.give_up()

    @hookimpl
    def on_task_instance_failed(self, previous_state: object, task_instance: Any) -> None:
        """Have the next triggerer end the app of a deferred task that somebody has marked; called in the API server.

        That it is to do so stands in Airflow's database, by the transaction that marks the task.
        """
        if previous_state is not None:
            return  # Airflow's own doing, in the task's process
        try:
            from airflow.models.callback import TriggererCallback  # from 3.2 on
        except ImportError:
            return
        from airflow.sdk import AsyncCallback
        from sqlalchemy.orm import object_session

        session: Any = object_session(task_instance)
        trigger = task_instance.trigger
        if trigger is not None and trigger.classpath == "transload_airflow.triggers.AppStateTrigger":
            callback = TriggererCallback(AsyncCallback("transload_airflow.triggers.end_app", trigger.kwargs))
            session.add(callback)
            callback.queue(**({"session": session} if hasattr(trigger, "team_name") else {}))  # 3.2 has no teams
            callback.trigger.team_name = getattr(trigger, "team_name", None)

    on_task_instance_success = on_task_instance_skipped = on_task_instance_failed


class ListenerPlugin(AirflowPlugin):
    """What Airflow loads the listener by."""

    name = "transload"
    listeners: ClassVar[list[Any]] = [Listener()]
