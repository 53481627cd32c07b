"""What tells one app of a flow run from the others, the same in every run of that flow run's code.

Prefect offers nothing of the kind: a task run's id changes when its flow is retried, its dynamic key is random, and all
tasks made by one factory share a task key. So ordinals are handed out where the order of the code decides: in the
flow's own thread, when a task is called, submitted or mapped.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from prefect.context import FlowRunContext, TaskRunContext
from prefect.utilities.hashing import hash_objects

_lock = threading.Lock()


def in_event_loop() -> bool:
    """Tell whether the caller runs in an event loop: what it calls then returns an awaitable."""
    with suppress(RuntimeError):
        return bool(asyncio.get_running_loop())
    return False


def next_unit(name: str) -> str | None:
    """Return the next unit of that name in the running flow; None outside of a flow run."""
    flow = FlowRunContext.get()
    if flow is None or flow.flow_run is None:
        return None
    task = TaskRunContext.get()
    if task is not None and task.task_run.flow_run_id == flow.flow_run.id:
        return _inside_task(flow, task, name)
    return f"{name}#{_count(flow, name)}"


def _inside_task(flow: FlowRunContext, context: TaskRunContext, name: str) -> str:
    """Return the unit of an app that an ordinary task starts: by that task's name, arguments and own ordinal."""
    run = context.task_run
    parent = f"{context.task.name}:{hash_objects(context.parameters) or ''}"
    ordinal = _count(flow, f"task:{parent}", once=str(run.id))
    return f"{parent}#{ordinal}/{name}#{_count(flow, f'run:{run.id}:{run.run_count}:{name}')}"


def _count(flow: FlowRunContext, what: str, once: str | None = None) -> int:
    """Return how often this was asked before; with ``once``, the first answer to whoever asks again under that name.

    The counters are the flow context's own: a retry of the flow gets a new context, and counts from 0 again.
    """
    keys: dict[str, Any] = flow.task_run_dynamic_keys
    counter = f"transload:{what}"
    asked = counter if once is None else f"{counter}:{once}"
    with _lock:
        if once is not None and asked in keys:
            return int(keys[asked])
        ordinal = int(keys.get(counter, 0))
        keys[counter] = ordinal + 1
        if once is not None:
            keys[asked] = ordinal
        return ordinal
