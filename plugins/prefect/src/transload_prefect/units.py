"""The numbers that tell the jobs of a flow run apart, the same in every run of its code.

Prefect offers nothing of the kind. A task run's id changes when its flow is retried, and its
dynamic key is random. All tasks made by one factory share a task key. So ordinals are given where
the order of the code decides. That is in the flow's own thread, when a task is called, submitted or
mapped.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from prefect.context import FlowRunContext, TaskRunContext
from prefect.utilities.hashing import hash_objects

if TYPE_CHECKING:
    from prefect import Flow, Task

_ENGINES: Final = ("prefect.flow_engine", "prefect.task_engine")
"""Modules of Prefect's that call the functions of flows and tasks."""

_lock = threading.Lock()


def in_async_code() -> bool:
    """Tell whether the caller is async code, to which an awaitable must be returned.

    An event loop may run around a sync flow as well. A flow called from async code, in a notebook,
    or by an async flow runs in the thread of its caller's loop. So the code around the caller
    decides, as it does for Prefect's own methods. A sync flow may also run a loop itself, whose
    coroutines are async code again.
    """
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        enclosing = _enclosing_run()
        return enclosing is None or enclosing.isasync or _in_coroutine_of_run()
    return False


def _enclosing_run() -> Flow[..., Any] | Task[..., Any] | None:
    """Return the flow or task whose code runs, or None outside of both."""
    flow, task = FlowRunContext.get(), TaskRunContext.get()
    if task is not None and (
        flow is None or flow.flow_run is None or _is_inside(task, flow.flow_run.id)
    ):
        return task.task
    return None if flow is None else flow.flow


def _is_inside(task: TaskRunContext, flow_run_id: Any) -> bool:
    """Tell whether a task run belongs to a flow run.

    If not, the task calls the flow as a subflow.
    """
    return bool(task.task_run.flow_run_id == flow_run_id)


def _in_coroutine_of_run() -> bool:
    """Tell whether a coroutine stands between the caller and Prefect's engine.

    The engine is the one that called the enclosing run's function.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") not in _ENGINES:
        if frame.f_code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            return True
        frame = frame.f_back
    return False


def next_unit(name: str) -> str | None:
    """Return the next unit of that name in the running flow, or None outside of a flow run."""
    flow = FlowRunContext.get()
    if flow is None or flow.flow_run is None:
        return None
    task = TaskRunContext.get()
    if task is not None and _is_inside(task, flow.flow_run.id):
        return _inside_task(flow, task, name)
    return f"{name}#{_count(flow, name)}"


def _inside_task(flow: FlowRunContext, context: TaskRunContext, name: str) -> str:
    """Return the unit of a job that an ordinary task starts.

    That task's name, arguments and own ordinal are in it.
    """
    run = context.task_run
    parent = f"{context.task.name}:{hash_objects(context.parameters) or ''}"
    ordinal = _count(flow, f"task:{parent}", once=str(run.id))
    return f"{parent}#{ordinal}/{name}#{_count(flow, f'run:{run.id}:{run.run_count}:{name}')}"


def _count(flow: FlowRunContext, what: str, once: str | None = None) -> int:
    """Return how often this was asked before.

    With ``once``, a second question under that name gets the first answer. The counters are the
    flow context's own. A retry of the flow gets a new context, and counts from 0 again.
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
