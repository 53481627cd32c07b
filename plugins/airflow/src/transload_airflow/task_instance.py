"""Read Airflow's facts of a task that runs, as its name, its files, and whether it is to end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from transload.pipelines import interrupted

if TYPE_CHECKING:
    from transload.pipelines import ExecutionOptions

OVER: Final = frozenset(
    {
        "success",
        "failed",
        "skipped",
        "upstream_failed",
        "removed",
        "restarting",
        "cleared",
        "deleted",
    }
)
"""States of a task instance whose present try is no longer to run.

Airflow has no words for the last two.
"""

CLEARED: Final = "cleared"
"""The state of a task instance that has none.

Somebody has cleared it, or a scheduler that takes it for abandoned begins it again.
"""

HANDLES: Final = "transload.handles"
"""Entry of the task state store that has each of the task's jobs by its key.

Of each job, it has the ``handle``, and the ``words`` of the try that has submitted it, or None if
they are not known.
"""


# -- its names and places


def map_index_of(ti: Any) -> int:
    """Return which of the instances of a mapped task it is, or -1 if it is not mapped."""
    index = getattr(ti, "map_index", None)
    if index is None:
        return -1
    return int(index)


def dag_folder(context: Mapping[str, Any]) -> str | None:
    """Return the folder of the file that defines the DAG, where its bundle is in this process.

    None: it is not known.
    """
    path = getattr(context.get("dag"), "fileloc", None)
    if not path:
        return None
    return os.path.dirname(str(path))


def kept(context: Mapping[str, Any], entry: str) -> dict[str, Any]:
    """Return what an entry of the task state store holds.

    That is nothing before Airflow 3.3, which has no such store. It survives retries, and up to 3.3
    a clear. Only the task's own process may ask for it, since a trigger would hang.
    """
    store = context.get("task_state_store")
    found = None if store is None else store.get(entry)
    return dict(found) if isinstance(found, Mapping) else {}


def keep(context: Mapping[str, Any], entry: str, values: Mapping[str, Any]) -> None:
    """Put values into an entry of the task state store, if there is one, beside what it holds.

    Raises:
        airflow.sdk.exceptions.AirflowRuntimeError: if Airflow refuses them.
    """
    store = context.get("task_state_store")
    if store is None:
        return
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    store.set(entry, {**kept(context, entry), **values}, retention=NEVER_EXPIRE)


def within_time_limit(context: Mapping[str, Any], options: ExecutionOptions) -> ExecutionOptions:
    """Return the options with the task's ``execution_timeout`` as an absolute end.

    Airflow by itself does not apply that limit while the task is deferred.
    """
    limit = getattr(context.get("task"), "execution_timeout", None)
    start = getattr(context["ti"], "start_date", None)
    if limit is None or start is None:
        return options
    return replace(options, deadline=start.timestamp() + limit.total_seconds())


# -- its end


def task_state(ti: Any, absent: str | None = None) -> str | None:
    """Ask Airflow for the state of a task instance.

    Args:
        ti: the task instance.
        absent: what to return if Airflow does not know it.

    Returns:
        The state, or ``cleared`` if it has none yet.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    answer = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=map_index_of(ti),
    )
    states = list(answer.get(ti.run_id, {}).values())
    if not states:
        return absent
    return str(states[0] or CLEARED)


def end_asked_for(context: Mapping[str, Any]) -> bool:
    """Tell whether somebody marked or cleared a task or deleted its run, so that it must end.

    A worker that is stopped, a supervisor that is killed and an API server that does not answer for
    long arrive as the same SIGTERM. So does a scheduler that begins the task again. In
    ``dag.test()`` a person's Ctrl-C asks for the end.
    """
    if interrupted():
        return True
    state = task_state(context["ti"], absent="deleted")
    if state == CLEARED:
        return cleared(context)
    return state in OVER


def cleared(context: Mapping[str, Any]) -> bool:
    """Tell whether somebody has cleared tasks of the run since this try began.

    Airflow before 3.3 does not say so, and True is returned there.
    """
    try:
        from airflow.sdk.execution_time.comms import DagRunResult, GetDagRun
    except ImportError:
        return True
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    ti = context["ti"]
    run = SUPERVISOR_COMMS.send(GetDagRun(dag_id=ti.dag_id, run_id=ti.run_id))
    if not isinstance(run, DagRunResult):
        return True
    return bool(run.clear_number != getattr(context.get("dag_run"), "clear_number", 0))


def will_reattach(error: Exception, context: Mapping[str, Any]) -> bool:
    """Tell whether Airflow answers an error of its own, or of a user's code, with a retry.

    That retry belongs to the same generation, so it reattaches.
    """
    from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

    if isinstance(error, (AirflowFailException, AirflowSkipException)):
        return False
    ti = context["ti"]
    return bool(ti.try_number <= ti.max_tries)
