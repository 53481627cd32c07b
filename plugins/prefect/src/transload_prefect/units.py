"""What tells one app of a flow run from the others, the same in every run of that flow run's code.

Prefect offers nothing of the kind: a task run's id changes when its flow is retried, its dynamic key is random, and all
tasks made by one factory share a task key. So ordinals are handed out where the order of the code decides: in the
flow's own thread, when a task is called, submitted or mapped.
"""

from __future__ import annotations

import threading
from typing import Any

from prefect.context import FlowRunContext, TaskRunContext
from prefect.utilities.hashing import hash_objects

_lock = threading.Lock()
_parents: dict[tuple[str, str], list[str]] = {}
_inner: dict[tuple[str, int, str], int] = {}
_MOST = 10_000


def next_unit(name: str) -> str | None:
    """Return the next unit of that name in the running flow; None outside of a flow run."""
    flow = FlowRunContext.get()
    if flow is None or flow.flow_run is None:
        return None
    task = TaskRunContext.get()
    if task is not None and task.task_run.flow_run_id == flow.flow_run.id:
        return _inside_task(task, name)
    keys: dict[str, Any] = flow.task_run_dynamic_keys
    with _lock:
        # a counter of the context's own: a retry of the flow gets a new context, and counts from 0 again
        ordinal = int(keys.get(f"transload:{name}", 0))
        keys[f"transload:{name}"] = ordinal + 1
    return f"{name}#{ordinal}"


def _inside_task(context: TaskRunContext, name: str) -> str:
    """Return the unit of an app that an ordinary task starts: by that task's name, arguments and own ordinal."""
    run = context.task_run
    parent = f"{context.task.name}:{hash_objects(context.parameters) or ''}"
    with _lock:
        if len(_inner) > _MOST:
            _inner.clear()
            _parents.clear()
        runs = _parents.setdefault((str(run.flow_run_id), parent), [])
        if str(run.id) not in runs:
            runs.append(str(run.id))
        key = (str(run.id), run.run_count, name)
        ordinal = _inner.get(key, 0)
        _inner[key] = ordinal + 1
        return f"{parent}#{runs.index(str(run.id))}/{name}#{ordinal}"
