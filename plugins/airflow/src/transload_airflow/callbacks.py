"""What a DAG author can hook into while a job runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transload.runner import AppResults
    from transload.specs import AppStatus


class AppCallbacks:
    """Called by `TransloadOperator` in the task's process. Override the methods that you need.

    A task with `on_status` waits in place. The triggerer has neither the DAG's code nor its
    callbacks, so ``deferrable=True`` is refused with it. An exception of a callback fails the task,
    as it would in the task's own code. If no retry will reattach to the job, it is ended as
    ``on_kill`` says.
    """

    def __repr__(self) -> str:
        """Return the name of the class.

        It stands in a stored DAG, which must look the same each time it is read.
        """
        return f"{type(self).__module__}.{type(self).__qualname__}()"

    @property
    def needs_the_task(self) -> bool:
        """Whether it is to be called while the job runs."""
        return type(self).on_status is not AppCallbacks.on_status

    def on_started(self, handle: str, attached: bool, context: Mapping[str, Any]) -> None:
        """Take note of a job that was submitted, or with ``attached`` was there already."""

    def on_status(self, status: AppStatus, context: Mapping[str, Any]) -> None:
        """Take note of a changed status."""

    def on_results(self, results: AppResults, context: Mapping[str, Any]) -> None:
        """Take note of the results of a job that ended well."""
