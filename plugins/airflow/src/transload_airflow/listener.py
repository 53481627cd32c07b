"""Ending the app of a task that nobody waits for when a person marks it, or when its run ends
without it.

A trigger's ``on_kill`` is called only where a triggerer runs it: a mark before that, or while none
runs, reaches nobody, nor does one of a task that waits for a retry (seen in Airflow 3.3.2). But the
API server tells listeners of each mark, the scheduler of a run that has timed out, and a deferral
that comes too late is refused.
"""

from __future__ import annotations

import json
from inspect import signature
from typing import Any, ClassVar, Final

from airflow.providers.common.compat.sdk import AirflowPlugin, hookimpl

from transload_airflow.stores import KEY, app_entry

departing: Final[list[tuple[Any, Any]]] = []
"""Task instance of the task that this process is about to defer, and the execution of its app."""

OVER: Final = ("success", "task_failure", "all_tasks_deadlocked")
"""What Airflow says of a run that ended by itself: nothing of it goes on."""


class Listener:
    """Listens in each process of Airflow."""

    @hookimpl
    def before_stopping(self, component: object) -> None:
        """End the app of a task that was marked before it could defer: the last that is called in
        its process.
        """
        while departing:
            from transload_airflow.run import task_state

            ti, execution = departing.pop()
            if task_state(ti) in ("failed", "success", "skipped"):
                execution.give_up(asked=True)

    @hookimpl
    def on_task_instance_failed(self, previous_state: object, task_instance: Any) -> None:
        """Have the next triggerer end the app of a task that somebody has marked; called in the API
        server.
        """
        if previous_state is None:  # else it is Airflow's own doing, in the task's process
            _have_ended(task_instance)

    on_task_instance_success = on_task_instance_skipped = on_task_instance_failed

    @hookimpl
    def on_dag_run_failed(self, dag_run: Any, msg: str) -> None:
        """Do so for what a run that was marked, or has timed out, leaves: Airflow skips it, and
        tells nobody.
        """
        if msg not in OVER:
            for task_instance in dag_run.task_instances:
                if task_instance.state == "skipped":
                    _have_ended(task_instance)

    on_dag_run_success = on_dag_run_failed


def _have_ended(task_instance: Any) -> None:
    """Note in Airflow's database, by the transaction that marks a task, that a triggerer is to end
    its app.
    """
    try:
        from airflow.models.callback import TriggererCallback  # from 3.2 on
    except ImportError:
        return
    from airflow.sdk import AsyncCallback
    from sqlalchemy.orm import object_session

    session: Any = object_session(task_instance)
    trigger = task_instance.trigger
    if trigger is not None and trigger.classpath == "transload_airflow.triggers.AppStateTrigger":
        found = [trigger.kwargs]
    else:
        found = _stored(task_instance, session)
    for what in found:
        callback = TriggererCallback(AsyncCallback("transload_airflow.triggers.end_app", what))
        session.add(callback)
        callback.queue(
            **({"session": session} if signature(callback.queue).parameters else {})
        )  # 3.2 takes none
        callback.trigger.team_name = getattr(trigger, "team_name", None)


def _stored(ti: Any, session: Any) -> list[dict[str, Any]]:
    """Return what the task itself has stored of its apps that end with it; before Airflow 3.3 there
    is no store.
    """
    try:
        from airflow._shared.state import TaskScope
        from airflow.state import get_state_backend
    except ImportError:
        return []
    scope = TaskScope(ti.dag_id, ti.run_id, ti.task_id, ti.map_index)

    def entry(name: str) -> dict[str, Any]:
        return dict(
            json.loads(get_state_backend().get(scope, f"{KEY}.{name}", session=session) or "{}")
        )

    units = ["", *entry("generation").get("asks", ())[1:]]
    records = [entry(app_entry(unit)) for unit in units]
    return [{"record": record} for record in records if record.get("on_kill") == "cancel"]


class ListenerPlugin(AirflowPlugin):
    """What Airflow loads the listener by."""

    name = "transload"
    listeners: ClassVar[list[Any]] = [Listener()]
