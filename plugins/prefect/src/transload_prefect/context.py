"""Say where in Prefect a job runs, as its runs, and in whose code.

This imports Prefect where it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect.context import FlowRunContext, TaskRunContext


@dataclass(frozen=True)
class RunContext:
    """Where in Prefect a job runs.

    Args:
        name: of the task.
        unit: which job of the flow run it is, or None outside of one.
        flow_run_id: of the flow run around it, or None if there is none.
        task_run_id: of the task run around it, or None if there is none.
        flow: Prefect's context of the flow, in the process that runs it.
        task: likewise of the task.
    """

    name: str
    unit: str | None
    flow_run_id: Any
    task_run_id: Any = None
    flow: FlowRunContext | None = None
    task: TaskRunContext | None = None

    @property
    def is_retried(self) -> bool:
        """Whether Prefect has tried this task before."""
        return self.task is not None and self.task.task_run.run_count > 1

    @staticmethod
    def here(name: str, unit: str | None) -> RunContext:
        """Return the context of the code that runs."""
        from prefect.context import FlowRunContext, TaskRunContext

        flow = FlowRunContext.get()
        task = TaskRunContext.get()
        task_run = None
        if task is not None:
            task_run = task.task_run
        task_run_id = task_run and task_run.id
        if flow is None or flow.flow_run is None:
            flow_run_id = task_run and task_run.flow_run_id
            return RunContext(name, unit, flow_run_id, task_run_id, task=task)
        return RunContext(name, unit, flow.flow_run.id, task_run_id, flow, task)
