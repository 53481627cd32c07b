"""Ending the job of a task without a process, when a person marks it or its run ends without it.

A trigger's ``on_kill`` is called only where a triggerer runs it. Before that, or while no triggerer
runs, a mark has no effect there. The same holds for a task that waits for a retry (seen in Airflow
3.3.2). But the API server calls listeners for each mark, and the scheduler for a run that has timed
out. A deferral that comes too late is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.common.compat.sdk import AirflowPlugin, hookimpl

from transload_airflow.stores import APPS, KEY

if TYPE_CHECKING:
    from transload.pipelines import Driver

OVER: Final = ("success", "task_failure", "all_tasks_deadlocked")
"""Airflow's reason for a run that ended by itself. Nothing of it goes on."""

END_APP: Final = "transload_airflow.triggers.end_app"
"""Import path of what a triggerer calls to end a job, which Airflow's database stores."""


@dataclass(frozen=True)
class Departure:
    """A task that this process is about to defer.

    Args:
        ti: its task instance.
        driver: looks after its job.
    """

    ti: Any
    driver: Driver


departing: Final[list[Departure]] = []
"""The tasks that this process is about to defer."""


class Listener:
    """Listens in each process of Airflow."""

    @hookimpl
    def before_stopping(self, component: object) -> None:
        """End the job of a task that was marked before it could defer.

        It is the last that Airflow calls in the task's process.
        """
        while departing:
            from transload_airflow.task_instance import task_state

            departure = departing.pop()
            if task_state(departure.ti) in ("failed", "success", "skipped"):
                departure.driver.give_up(asked=True)

    @hookimpl
    def on_task_instance_failed(self, previous_state: object, task_instance: Any) -> None:
        """Have the next triggerer end the job of a task that somebody has marked.

        The API server calls it then, without a previous state. With one, it is Airflow's own doing,
        in the task's process.
        """
        if previous_state is None:
            _have_ended(task_instance)

    on_task_instance_success = on_task_instance_skipped = on_task_instance_failed

    @hookimpl
    def on_dag_run_failed(self, dag_run: Any, msg: str) -> None:
        """Have the next triggerer end what a run leaves that was marked, or has timed out.

        Airflow skips these tasks, and calls no listener for them.
        """
        if msg in OVER:
            return
        for task_instance in dag_run.task_instances:
            if task_instance.state == "skipped":
                _have_ended(task_instance)

    on_dag_run_success = on_dag_run_failed


def _have_ended(task_instance: Any) -> None:
    """Note in Airflow's database that a triggerer is to end the job of a task.

    The note is made by the transaction that marks the task.
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
        arguments = [trigger.kwargs]
    else:
        arguments = _stored(task_instance, session)
    for each in arguments:
        callback = TriggererCallback(AsyncCallback(END_APP, each))
        session.add(callback)
        if signature(callback.queue).parameters:
            callback.queue(session=session)
        else:  # Airflow 3.2
            callback.queue()
        callback.trigger.team_name = getattr(trigger, "team_name", None)


def _stored(ti: Any, session: Any) -> list[dict[str, Any]]:
    """Return what the task itself has stored of its jobs that end with it.

    Before Airflow 3.3 there is no store.
    """
    try:
        from airflow._shared.state import TaskScope
        from airflow.state import get_state_backend
    except ImportError:
        return []
    place = [ti.dag_id, ti.run_id, ti.task_id]
    if hasattr(ti, "region_id"):  # from 3.4 on: a mapped or looped task has a region
        scope = TaskScope(*place, ti.region_index, ti.region_id)
    else:
        scope = TaskScope(*place, ti.map_index)
    text = get_state_backend().get(scope, f"{KEY}.{APPS}", session=session)
    records = json.loads(text or "{}").values()
    return [{"record": record} for record in records if record.get("on_kill") == "cancel"]


class ListenerPlugin(AirflowPlugin):
    """What Airflow loads the listener by."""

    name = "transload"
    listeners: ClassVar[list[Any]] = [Listener()]
