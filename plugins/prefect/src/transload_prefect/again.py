"""Begin another generation of a job at a rollback, or with ``refresh_cache``.

A flow that is retried, or run again after a crash, collects the results of its jobs. It does not
collect those that were rolled back since, nor those of a task with ``refresh_cache``, which Prefect
does again. So another generation of the job begins then. That is noted with the job, so that
another process of the flow run sees it as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from prefect.context import TaskRunContext
from prefect.settings import PREFECT_TASKS_REFRESH_CACHE
from prefect.transactions import get_transaction

from transload_prefect.notes import Notes, noted

_DONE: Final = "transload.done"
"""Name of the value in a transaction that says which job was run in it."""


class BeginAgain:
    """A hook of a transaction with which another generation of a job begins.

    Args:
        notes: of the job.
        generation: the one that is over.
    """

    log_on_run = False  # for Prefect: it is no hook of the user's

    def __init__(self, notes: Notes, generation: str) -> None:
        self._notes = notes
        self._generation = generation

    def __call__(self, transaction: Any) -> None:
        """Note that it begins."""
        self._notes.end_generation(self._generation)


@dataclass(frozen=True)
class RolledBack:
    """A rollback hook of all job tasks, which is the last of each.

    Prefect begins with it, whatever the user's hooks do.
    """

    log_on_run: ClassVar[bool] = False

    def __call__(self, transaction: Any) -> None:
        """Begin again, unless nothing was undone."""
        flow_run_id, unit, generation, in_own = transaction.get(_DONE, (None, None, None, False))
        hooks = [
            each for each in transaction.on_rollback_hooks if getattr(each, "log_on_run", True)
        ]
        if unit is not None and (in_own or hooks):
            BeginAgain(noted(flow_run_id, unit), generation)(transaction)


ROLLED_BACK: Final = RolledBack()


def note_done(notes: Notes | None) -> None:
    """Note in the running transaction which job runs in it.

    By that its end can begin another generation. A task that fails rolls back the tasks that it
    called. This alone undoes nothing, so its retry collects what they did. For another generation,
    something has to be rolled back by a hook, or in a transaction that the user opened.

    Args:
        notes: of the job, or None if nothing finds it again.
    """
    transaction: Any = get_transaction()
    if notes is None or transaction is None:
        return
    running = list(_running_tasks())
    in_own = _open_transactions(transaction) > len(running)
    transaction.set(_DONE, (notes.flow_run_id, notes.unit, notes.generation, in_own))
    if any(map(_refreshes, running)):
        transaction.on_commit_hooks.append(BeginAgain(notes, notes.generation))


def _refreshes(task: Any) -> bool:
    return bool(
        PREFECT_TASKS_REFRESH_CACHE.value() if task.refresh_cache is None else task.refresh_cache
    )


def _running_tasks() -> Iterator[Any]:
    """Yield the task whose code runs, and those around it. Each has a separate transaction."""
    context, seen = TaskRunContext.get(), set()
    while isinstance(context, TaskRunContext):
        if (
            context.task_run.id not in seen
        ):  # Prefect enters the context of a task run more than once
            seen.add(context.task_run.id)
            yield context.task
        token = getattr(context, "_token", None)
        context = token.old_value if token is not None else None


def _open_transactions(transaction: Any) -> int:
    """Return how many transactions there are, this one and those around it."""
    opened = 0
    while transaction is not None:
        opened += 1
        transaction = transaction.get_parent()
    return opened
