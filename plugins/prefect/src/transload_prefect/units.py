"""What tells the jobs of a flow run apart, the same in every run of its code.

Prefect offers nothing of the kind. A task run's id changes when its flow is retried, and its
dynamic key is random. All tasks made by one factory share a task key. So a job is known by its
task's name and the arguments of the call, and a number tells those apart that have the same. Which
of these gets which number does not matter, since they ask for the same.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Caller:
    """The code of a flow run that calls a task which runs a job.

    Args:
        path: what comes before the unit: the ordinary task that calls, or "" for the flow itself.
        counted_in: what its jobs are counted in, which is the caller's present try.
    """

    path: str = ""
    counted_in: str = ""

    @staticmethod
    def here() -> Caller | None:
        """Return the caller, or None outside of a flow run."""
        flow = FlowRunContext.get()
        if flow is None or flow.flow_run is None:
            return None
        task = TaskRunContext.get()
        if task is None or not _is_inside(task, flow.flow_run.id):
            return Caller()
        run = task.task_run
        parent = f"{task.task.name}:{hash_objects(task.parameters) or ''}"
        ordinal = _count(flow, f"task:{parent}", once=str(run.id))
        return Caller(f"{parent}#{ordinal}/", f"run:{run.id}:{run.run_count}:")

    def keyed(self, key: str) -> str:
        """Return the unit of a call of a task with a key, which counts in the order of the code."""
        flow = FlowRunContext.get()
        assert flow is not None
        return f"{self.path}{key}#{_count(flow, f'{self.counted_in}{key}')}"


def unit_of_call(name: str, caller: Caller, asked: Mapping[str, Any], task_run_id: Any) -> str:
    """Return the unit of the task run around this code, whose task has no key.

    Args:
        name: of the task.
        caller: what called it.
        asked: what it asks for.
        task_run_id: the task run, which keeps its number in all its tries.
    """
    known_by = f"{name}:{hash_objects(dict(asked)) or ''}"
    flow = FlowRunContext.get()
    number = 0
    if flow is not None:
        number = _count(flow, f"{caller.counted_in}{known_by}", once=str(task_run_id))
    return f"{caller.path}{known_by}#{number}"


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
