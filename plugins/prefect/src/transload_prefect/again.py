"""Begin another generation of a job at a rollback, or with ``refresh_cache``.

A flow that is retried, or run again after a crash, collects the results of its jobs. It does not
collect those that were rolled back since, nor those of a task with ``refresh_cache``, which Prefect
does again. So another generation of the job begins then. That is noted with the job, so that
another process of the flow run sees it as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prefect.settings import PREFECT_TASKS_REFRESH_CACHE
from prefect.transactions import get_transaction

from transload_prefect.notes import Notes
from transload_prefect.runs import running_tasks


@dataclass(frozen=True)
class BeginAgain:
    """A hook of a transaction with which another generation of a job begins.

    Args:
        notes: of the job.
        generation: the one that is over.
        always: else only if a hook of the user's has undone something.
    """

    log_on_run: ClassVar[bool] = False  # for Prefect: it is no hook of the user's

    notes: Notes
    generation: str
    always: bool

    def __call__(self, transaction: Any) -> None:
        """Note that it begins."""
        hooks = transaction.on_rollback_hooks
        if self.always or any(getattr(each, "log_on_run", True) for each in hooks):
            self.notes.end_generation(self.generation)


def note_done(notes: Notes | None) -> None:
    """Have the end of the running transaction begin another generation, where it asks for that.

    A task that fails rolls back the tasks that it called. This alone undoes nothing, so its retry
    collects what they did. For another generation, something has to be rolled back by a hook, or in
    a transaction that the user opened.

    Args:
        notes: of the job, or None if nothing finds it again.
    """
    transaction: Any = get_transaction()
    if notes is None or transaction is None:
        return
    running = list(running_tasks())
    in_own = _open_transactions(transaction) > len(running)
    rolled_back = BeginAgain(notes, notes.generation, always=in_own)
    transaction.on_rollback_hooks.append(rolled_back)
    if any(_refreshes(each.task) for each in running):
        transaction.on_commit_hooks.append(BeginAgain(notes, notes.generation, always=True))


def _refreshes(task: Any) -> bool:
    return bool(
        PREFECT_TASKS_REFRESH_CACHE.value() if task.refresh_cache is None else task.refresh_cache
    )


def _open_transactions(transaction: Any) -> int:
    """Return how many transactions there are, this one and those around it."""
    opened = 0
    while transaction is not None:
        opened += 1
        transaction = transaction.get_parent()
    return opened
