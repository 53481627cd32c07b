"""Make tasks and their contexts without Airflow's daemons, for what needs no real ones."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload_airflow import TransloadOperator
from transload_airflow.runner import runner_for_tasks
from transload_testing import scripted_app


class Kept(dict[str, Any]):
    """What ``context["task_state_store"]`` is, in memory."""

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Keep a value, for ever."""
        assert retention is not None, "what is ours must never expire"
        self[key] = value


class TaskInstance(SimpleNamespace):
    """What the operator needs of a task instance."""

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep an XCom."""
        self.xcoms[key] = value

    def xcom_pull(self, task_ids: str, key: str, map_indexes: int) -> Any:
        """Return an XCom of this very task instance, or None."""
        assert (task_ids, map_indexes) == (self.task_id, self.map_index)
        return self.xcoms.get(key)


def make_context(
    task: Any,
    *,
    with_store: bool = True,
    try_number: int = 1,
    max_tries: int = 0,
    run_id: str = "run",
    map_index: int = -1,
) -> dict[str, Any]:
    """Return the context of a task."""
    ti = TaskInstance(
        dag_id="dag",
        run_id=run_id,
        task_id=task.task_id,
        map_index=map_index,
        max_tries=max_tries,
        try_number=try_number,
        start_date=dt.datetime.now(dt.UTC),
        xcoms={},
    )
    context = {
        "ti": ti,
        "task": task,
        "dag_run": SimpleNamespace(clear_number=0),
        "params": {"word": "there"},
    }
    return {**context, "task_state_store": Kept()} if with_store else context


def execute(task: Any, context: dict[str, Any]) -> Any:
    """Run a task as a process of its own does. Its guard wants the real task runner."""
    own = {**context, "ti": copy.copy(context["ti"])}
    return type(task).execute.__wrapped__(task, own)


def scripted(script: Mapping[str, Any] | None = None, **options: Any) -> TransloadOperator:
    """Return an operator of a scripted app."""
    app = options.pop("app", None) or scripted_app("app", script)
    return TransloadOperator(
        task_id="job", app=app, scheduler="scripted", deferrable=False, **options
    )


def deferring(script: Mapping[str, Any], **options: Any) -> TransloadOperator:
    """Return a deferrable operator of a scripted app."""
    app = scripted_app("a", script)
    return TransloadOperator(
        task_id="job", app=app, scheduler="scripted", deferrable=True, **options
    )


def refuse_cancels(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the scheduler be out of reach for the next cancels, which are asked for in quick
    succession.
    """
    runner, left = runner_for_tasks(), [times]
    cancel = runner.cancel

    def hesitant(handle: str) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise SchedulerUnavailable("no answer")
        cancel(handle)

    monkeypatch.setattr(runner, "cancel", hesitant)
    monkeypatch.setattr("transload_airflow.step.PAUSE_S", 0.01)
