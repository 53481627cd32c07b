"""Where in Prefect a job runs, and what tells it from the other jobs of its flow run.

Prefect offers nothing that is the same in every run of a flow's code. A task run's id changes when
its flow is retried, and its dynamic key is random. So a job is known by what is asked for, and by
the tasks around it with their parameters. A number tells those apart that are equal. Which of them
gets which number does not matter, since they ask for the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

from prefect.context import FlowRunContext, TaskRunContext
from prefect.utilities.hashing import hash_objects

from transload.errors import ConfigError, SpecError

_lock = threading.Lock()


@dataclass(frozen=True)
class RunContext:
    """Where in Prefect a job runs.

    Args:
        name: of the task that the job is, else of the job.
        unit: which job of its run it is.
        flow: Prefect's context of the flow around it, or None if there is none in this process.
        task: likewise of the task around it.
        asker: id and try of each task around it, the outermost first.
    """

    name: str
    unit: str
    flow: FlowRunContext | None = None
    task: TaskRunContext | None = None
    asker: tuple[tuple[str, int], ...] = ()

    @property
    def flow_run_id(self) -> Any:
        """The id of the flow run around it, or None if there is none."""
        if self.flow is not None and self.flow.flow_run is not None:
            return self.flow.flow_run.id
        return self.task and self.task.task_run.flow_run_id

    @property
    def task_run_id(self) -> Any:
        """The id of the task run around it, or None if there is none."""
        return self.task and self.task.task_run.id

    @property
    def run_id(self) -> str:
        """The id of the run whose code is the same whenever it is run again."""
        if self.flow is None:
            return str(self.task_run_id)
        return str(self.flow_run_id)

    @property
    def is_retried(self) -> bool:
        """Whether Prefect has tried the task around it before."""
        return self.task is not None and self.task.task_run.run_count > 1


def here(name: str, asked: Any, key: str | None = None, *, is_task: bool) -> RunContext:
    """Return where the code runs that asks for a job.

    Args:
        name: of the task that the job is, else of the job.
        asked: what it asks for.
        key: names the job in its flow run, in place of all else.
        is_task: the task around this code is the job, and does nothing else.

    Raises:
        ConfigError: outside of a flow and a task.
        SpecError: if this code has asked for a job with that key before.
    """
    flow = FlowRunContext.get()
    if flow is not None and flow.flow_run is None:
        flow = None
    tasks = list(_tasks_of(flow))
    if flow is None and not tasks:
        raise ConfigError(f"{name}: a job runs inside a flow or a task of Prefect")
    task = tasks[0] if tasks else None
    counters: dict[str, Any]
    if flow is not None:  # a retry of the flow has another context, and counts from 0 again
        counters = flow.task_run_dynamic_keys
    else:
        counters = _counters_of(str(tasks[-1].task_run.id))
    path = ""
    asker: tuple[tuple[str, int], ...] = ()
    for each in reversed(tasks[1:] if is_task else tasks):
        known_by = f"{each.task.name}:{hash_objects(each.parameters) or ''}"
        path += f"{known_by}#{_count(counters, asker, known_by, once=each.task_run.id)}/"
        asker += (_try_of(each),)
    if key is None:
        known_by = f"{name}:{hash_objects(asked) or ''}"
        once = task.task_run.id if task is not None and is_task else None
        unit = f"{path}{known_by}#{_count(counters, asker, known_by, once=once)}"
    else:
        unit = key
        if not is_task and _count(counters, asker, f"key:{key}"):
            raise SpecError(f"key={key!r}: names one job of its flow run, and is asked for twice")
    if task is not None and is_task:
        asker += (_try_of(task),)
    return RunContext(name, unit, flow, task, asker)


def _try_of(task: TaskRunContext) -> tuple[str, int]:
    return str(task.task_run.id), task.task_run.run_count


def running_tasks() -> Iterator[TaskRunContext]:
    """Yield the context of the task whose code runs, then those of the tasks around it."""
    context: Any = TaskRunContext.get()
    seen = set()
    while isinstance(context, TaskRunContext):
        if context.task_run.id not in seen:  # Prefect enters the context of a run more than once
            seen.add(context.task_run.id)
            yield context
        context = around(context)


def around(context: Any) -> Any:
    """Return the context of Prefect's that was there before a context was entered, or None."""
    token = getattr(context, "_token", None)
    return None if token is None else token.old_value


def _tasks_of(flow: FlowRunContext | None) -> Iterator[TaskRunContext]:
    """Yield the tasks that run here, without those that call the flow as a subflow."""
    if flow is None or flow.flow_run is None:
        return running_tasks()
    run_id = flow.flow_run.id
    return takewhile(lambda each: each.task_run.flow_run_id == run_id, running_tasks())


@lru_cache(1024)
def _counters_of(task_run_id: str) -> dict[str, Any]:
    """Return the counters of a task run outside of a flow."""
    return {}


def _count(
    counters: dict[str, Any], asker: tuple[tuple[str, int], ...], what: str, once: Any = None
) -> int:
    """Return how often this was asked for before by the present try of the asking task.

    With ``once``, a second question under that name gets the first answer.
    """
    counter = f"transload:{asker[-1:]}:{what}"
    asked = counter if once is None else f"{counter}:{once}"
    with _lock:
        if once is not None and asked in counters:
            return int(counters[asked])
        number = int(counters.get(counter, 0))
        counters[counter] = number + 1
        if once is not None:
            counters[asked] = number
        return number
